r"""The network of a smoother: what the frames around it, and the actions, say of each frame's latents.

A `FrameEncoder` reads each frame by itself. A bidirectional gated recurrent network carries what it says
along the sequence, and for each frame answers with corrections: how far to move its location towards what
the others lead one to expect, how sure to be, and how a frame's error follows from that of the one before.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ..data.sequences import SequenceBatch
from ..distributions import GaussMarkov
from .layers import BatchLinear
from .transition import FrameEncoder

__all__ = ["Smoother"]

_OPEN = -2.0  # a gate begins nearly shut: the smoother begins as the frame encoder alone


class Smoother(nn.Module):
    r"""Amortised :math:`q(z_{1:T} \mid x_{1:T}, a_{1:T})`, a Gaussian Markov chain.

    With :math:`\mu_t, L_t` of the frame encoder and :math:`h_t` the states of both directions of a gated
    recurrent network (GRU) over what the frame encoder says, the actions, and flags of what is linked and
    observed,

    .. math::

        m_t = \mu_t + \sigma(U h_t) \odot (V h_t - \mu_t), \qquad
        \log \mathrm{diag} L_t \mathrel{+}= W h_t, \qquad A_t = A(h_t),

    and :math:`A_t = 0` where nothing leads from the frame before to this one.

    Parameters
    ----------
    n_restarts, n_latents, n_actions : int
        Sizes.
    encoder : FrameEncoder
        Reads each frame.
    units : int
        States of the GRU in each direction.

    References
    ----------
    Krishnan, Shalit & Sontag (2017), arXiv 1609.09869: recurrent networks in both directions as the guide of
    a state-space model.
    """

    def __init__(
        self, n_restarts: int, n_latents: int, n_actions: int, encoder: FrameEncoder, units: int = 64
    ):
        super().__init__()
        self.n_restarts, self.n_latents = n_restarts, n_latents
        self.frames = encoder
        n_below = len(encoder.place)
        n_in = 2 * n_latents + n_below + 2 + n_actions
        # torch's GRU knows no restarts: it is given the parameters of each in turn, and has none of its own
        gru = nn.GRU(n_in, units, batch_first=True, bidirectional=True, device="meta")
        self.__dict__["_one"] = gru
        self.recurrent = nn.ParameterDict()
        for name, parameter in gru.named_parameters():
            # a bias is a row, as in `BatchLinear`
            shape = parameter.shape if parameter.dim() == 2 else (1, len(parameter))
            self.recurrent[name] = torch.empty(n_restarts, *shape).uniform_(-(units**-0.5), units**-0.5)
        self.sizes = [n_latents, n_latents, n_latents, n_below, n_latents**2]
        self.answer = BatchLinear(n_restarts, 2 * units, sum(self.sizes), gain=0.1)
        with torch.no_grad():
            assert self.answer.bias is not None
            self.answer.bias[..., n_latents : 2 * n_latents] = _OPEN

    def forward(self, batch: SequenceBatch) -> GaussMarkov:
        """Distribution of the latents, batch (restart, sequence), event (time, latent)."""
        n, t = batch.x.shape[:2]
        k = self.n_latents
        observed = None if batch.mask is None else batch.mask.flatten(0, 1)
        loc, log_sd, below = (
            output.unflatten(1, (n, t)) for output in self.frames.outputs(batch.x.flatten(0, 1), observed)
        )
        everywhere = batch.x.new_ones(n, t)
        linked = everywhere if batch.linked is None else batch.linked.to(batch.x.dtype)
        ahead = torch.cat([linked[:, 1:], torch.zeros_like(linked[:, :1])], 1)
        conditions = [linked.unsqueeze(-1), ahead.unsqueeze(-1)]
        conditions += [] if batch.actions is None else [batch.actions]
        condition = torch.cat(conditions, -1).expand(self.n_restarts, n, t, -1)
        states = self._passed(torch.cat([loc, log_sd, below, condition], -1), batch.present)
        towards, gate, wider, skewed, link = self.answer(states.flatten(1, 2)).split(self.sizes, -1)
        towards, gate, wider, skewed = (
            output.unflatten(1, (n, t)) for output in (towards, gate, wider, skewed)
        )
        loc = loc + gate.sigmoid() * (towards - loc)
        log_sd = (log_sd + wider).clamp(*self.frames.log_sd_range)
        factor = ((below + skewed) @ self.frames.place).unflatten(-1, (k, k)) + torch.diag_embed(log_sd.exp())
        link = link.reshape(self.n_restarts, n, t, k, k) * linked[..., None, None]
        return GaussMarkov(loc, link, factor, log_sd.sum(-1), batch.present)

    def _passed(self, sequences: Tensor, present: Tensor | None) -> Tensor:
        """States of both directions, (restart, sequence, time, 2 units); padding is not read."""
        hidden_states = []
        network: nn.Module = self.__dict__["_one"]
        for r, inputs in enumerate(sequences):
            parameters: dict[str, Tensor] = {
                name: value[r, 0] if name.startswith("bias") else value[r]
                for name, value in self.recurrent.items()
            }
            if present is None:
                hidden_states.append(functional_call(network, parameters, (inputs,))[0])
                continue
            lengths = present.sum(1).clamp(min=1).cpu()
            packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
            states = functional_call(network, parameters, (packed,))[0]
            hidden_states.append(
                pad_packed_sequence(states, batch_first=True, total_length=inputs.shape[1])[0]
            )
        return torch.stack(hidden_states)
