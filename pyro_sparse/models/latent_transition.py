r"""Mechanism sparsity (Lachapelle et al. 2024): which latent, and which action, drives which latent.

.. math:: G_{ij} \sim \mathrm{Bernoulli}(\eta), \quad
          z_{t,i} \sim N\big(m_i(G^z_i \odot z_{t-1}, G^a_i \odot a_t), s_i^2\big), \quad
          x_t \sim \mathrm{likelihood}(f(z_t))

The same program is fitted twice. `dense`: no edges, one network m for all latents; that finds the space of
the latents, but not their axes. `fold` then turns the latents to the axes in which m is sparse
(`inference/rotation/jacobian_axes.py`), and from there the edges are random and each latent has a network of
its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor, nn

from .._utils.checks import check_whole
from .._utils.declared import Declared
from ..data.sequences import SequenceBatch
from ..distributions import FullNormal, GaussMarkov, RelaxedEdges
from ..distributions.latent_chain import LatentChain
from ..likelihoods import Likelihood, Normal, get_likelihood
from ..nets.smoother import Smoother
from ..nets.transition import FrameDecoder, FrameEncoder, GatedTransition, SineTransition
from ..priors.em import informed_eta_step
from ._edge_odds import EdgeOdds
from ._sizes import check_sized, sizes_repr
from ._transition_edges import ActionEdge, Edge, edge_masks, with_actions
from .base import EdgeSet, Model

__all__ = ["LatentTransition"]

# What a subclass may write anew without changing the density of the latents given their past. The networks
# that `setup` made are looked at themselves.
_FREE = frozenset({
    "beta", "decode", "edge_guide", "edges", "frames", "guide", "posterior", "setup", "take_actions",
    "take_features", "temperature",
})  # fmt: skip
# What the closed form of the ELBO (`inference/transition/transition_elbo.py`) is made of.
_PROGRAMS = frozenset({"chain", "decode", "edge_guide", "edge_sites", "guide", "model", "posterior"})


class LatentTransition(Model):
    r"""Sequences driven by their latents' past, by actions, or by both, through a sparse graph.

    Parameters
    ----------
    n_features : int, optional
        Of a frame; default those of the sequences that are fitted.
    n_latents : int
        Latents behind it, at most as many; has to be given.
    n_actions : int
        Actions, as many as columns that the caller has: a categorical one counts once, whatever its levels;
        0: there are none.
    lags : int
        Frames back that drive a frame; 0: only actions do.
    likelihood : str or Likelihood, optional
        Distribution of a cell given its linear predictor. By default ``Normal(floor=0.002)``, normal noise,
        one sd per feature: sequences may have as little as .01 standard deviations (as the published ones),
        and the floor of "normal" is .02. Frames have no totals and no size factors: counts want
        ``Poisson(size_factors=False)``.
    hidden : int
        Width of the three hidden layers of encoder and decoder.
    units, gated_units : int
        Sines of the dense transition, and of each latent's own.
    heteroscedastic : bool
        Let the edges act on the scale of the transition noise too.
    required_time, forbidden_time : iterable of (target, source), optional
        Latent edges that must be there at lag 1, or must not at any lag. Latents have no names before a fit:
        they are numbered so that the strengths found suit these edges best.
    self_loops : {"free", "required", "forbidden"}
        The diagonal of the time graph, likewise.
    concentration : tuple of float
        Beta prior (a, b) of the inclusion probability η.
    hard_gates : bool
        Straight-through gates: exactly 0 or 1 forward, soft backward. Otherwise soft both ways.
    smoother : bool
        Let the guide see the whole sequence (`smoother_nets.Smoother`), for frames that do not determine
        their latents: noisy or missing ones. On four small sets, one restart each, the held-out ELBO rose in
        all and MCC in three (`benchmarks/smoother.py`); a fit takes 2.3 times as long. By default the guide
        is q(z_t | x_t). Smoothed latents lean towards what the transition expects, which `edge_posterior`
        does not know of.
    required_action, forbidden_action : iterable of (target, action), optional
        Edges of actions that must be there, or must not; actions by name or by position.
    edge_odds_time, edge_odds_action : mapping of edges to odds, DataFrame or array, optional
        By how much the odds of single edges differ from those of all others: 1 says nothing, 20 that an edge
        is expected, .05 that it is not. Edges are (target, source), at every lag, and (target, action); an
        array has these dimensions, a DataFrame targets as its rows and names of actions as its columns.
        Odds of an edge that is required or forbidden are not read. They count in training and in the
        evidence of parent sets, and where latents are numbered.
    action_widths : sequence of int, optional
        Columns of each action: one fewer than the levels of a categorical one, and 1 of any other; default
        those of the sequences that are fitted. A gate opens all columns of an action, or none.

    Attributes
    ----------
    axes : buffer (restart, latent, latent)
        ``latent = axes @ latent of the dense fit``; the identity before `fold`.
    temperature : float
        Of the relaxed edges in the guide.
    logits : Parameter (restart, latent, parent)
        Relaxed edges, parents being the past latents (lag 1, 2, …) and then the actions; present after
        `fold`.
    eta : buffer (restart,)
        Inclusion probability of an edge.

    Raises
    ------
    ValueError
        Impossible sizes, nothing that could drive the latents, contradicting constraints, odds that are no
        positive numbers, an action that does not exist, a likelihood of totals or size factors.

    References
    ----------
    Lachapelle et al. (2024), arXiv 2401.04890, section 7.

    Examples
    --------
    >>> model = LatentTransition(n_features=8, n_latents=3, n_actions=2)
    >>> model.setup(n_restarts=2)
    >>> model.n_inputs, model.dense
    (5, True)
    """

    declares = (
        Declared("latent transition", free=_FREE),
        Declared("closed-form ELBO", rests_on=_PROGRAMS, free=frozenset({"after_step", "setup"})),
    )
    beta: float = 1.0
    dense: bool = True
    temperature: float = 1.0
    axes: Tensor
    eta: Tensor
    folded: Tensor
    n_features: int
    allowed: Tensor
    must: Tensor
    log_odds: Tensor
    parent_of_input: Tensor

    def __init__(
        self,
        n_features: int | None = None,
        n_latents: int | None = None,
        n_actions: int = 0,
        lags: int = 1,
        likelihood: str | Likelihood | None = None,
        hidden: int = 128,
        units: int = 128,
        gated_units: int = 32,
        heteroscedastic: bool = False,
        required_time: Iterable[Edge] | None = None,
        forbidden_time: Iterable[Edge] | None = None,
        self_loops: str = "free",
        concentration: tuple[float, float] = (1.0, 1.0),
        hard_gates: bool = False,
        smoother: bool = False,
        required_action: Iterable[ActionEdge] | None = None,
        forbidden_action: Iterable[ActionEdge] | None = None,
        edge_odds_time: EdgeOdds | None = None,
        edge_odds_action: EdgeOdds | None = None,
        action_widths: Sequence[int] | None = None,
    ):
        super().__init__()
        if n_latents is None:
            raise TypeError("LatentTransition: wants n_latents, how many latents; got none")
        check_whole(1, n_latents=n_latents)
        check_whole(1, hidden=hidden, units=units, gated_units=gated_units)
        check_whole(0, n_actions=n_actions, lags=lags)
        if n_actions == 0 and lags == 0:
            raise ValueError(
                f"n_actions={n_actions}, lags={lags}: wanted at least one action or one lag, "
                "or nothing drives the latents"
            )
        if self_loops not in ("free", "required", "forbidden"):
            raise ValueError(f"self_loops: got {self_loops!r}, wanted 'free', 'required' or 'forbidden'")
        if smoother and not lags:
            raise ValueError(
                "smoother: got True with lags=0, where no frame says anything of another; "
                "leave it out, or set lags=1 or more"
            )
        if len(concentration) != 2 or not min(concentration) > 0:
            raise ValueError(f"concentration: got {concentration}, wanted two positive numbers")
        self.n_latents = int(n_latents)
        self.n_features = None  # type: ignore[assignment]  # until there are sequences
        if n_features is not None:
            check_whole(1, n_features=n_features)
            self.take_features(int(n_features))
        self.n_actions, self.lags = int(n_actions), int(lags)
        self.hidden, self.units, self.gated_units = hidden, units, gated_units
        self.heteroscedastic, self.self_loops, self.concentration = heteroscedastic, self_loops, concentration
        self.hard_gates, self.smoother = bool(hard_gates), bool(smoother)
        self.required_time = [] if required_time is None else [(int(i), int(j)) for i, j in required_time]
        self.forbidden_time = [] if forbidden_time is None else [(int(i), int(j)) for i, j in forbidden_time]
        self.required_action = with_actions(required_action)
        self.forbidden_action = with_actions(forbidden_action)
        self.edge_odds_time, self.edge_odds_action = edge_odds_time, edge_odds_action
        self.action_names: list[str] | None = None  # until there are sequences
        self._given_widths = None if action_widths is None else [int(width) for width in action_widths]
        self.action_widths = [1] * self.n_actions if self._given_widths is None else self._given_widths
        if len(self.action_widths) != self.n_actions or min(self.action_widths, default=1) < 1:
            raise ValueError(
                f"action_widths: got {self.action_widths} for n_actions={self.n_actions}; wanted a whole "
                "number of at least 1 for each, or nothing, to take them from the sequences"
            )
        self.likelihood = Normal(floor=0.002) if likelihood is None else get_likelihood(likelihood)
        if self.likelihood.reads_columns:
            raise ValueError(
                f"likelihood: got {self.likelihood.name!r}, and sequences have one likelihood for all "
                "columns and no levels; wanted 'normal', 'bernoulli', or of counts Poisson or "
                "NegativeBinomial(size_factors=False)"
            )
        if self.likelihood.per_row_inputs and getattr(self.likelihood, "size_factors", True):
            raise ValueError(
                f"likelihood: got {self.likelihood.name!r}, which reads rows' totals, and frames have none; "
                "wanted 'normal', 'bernoulli', or of counts Poisson or NegativeBinomial(size_factors=False)"
            )
        self.edges = (
            *((EdgeSet("time", ("target", "source"), "G"),) if lags else ()),
            *((EdgeSet("action", ("target", "action"), "G"),) if n_actions else ()),
        )
        self._constraints()

    def __repr__(self) -> str:
        about = {
            "n_actions": self.n_actions,
            "lags": self.lags,
            "likelihood": repr(self.likelihood.full_name),
        }
        return sizes_repr(self, "n_latents", about)

    # ---- building ------------------------------------------------------------------------------------------
    def take_features(self, n_features: int) -> None:
        """Be a model of so many features, where it was made without saying how many.

        Parameters
        ----------
        n_features : int

        Raises
        ------
        ValueError
            Fewer than latents.
        """
        if self.n_latents > n_features:
            raise ValueError(
                f"n_latents: got {self.n_latents} for n_features={n_features}; "
                "wanted 1 <= n_latents <= n_features (the mixing must be one-to-one; lower n_latents)"
            )
        self.n_features = n_features
        self.__dict__.get("_arguments", {})["n_features"] = n_features

    def take_actions(self, names: Sequence[str], widths: Sequence[int]) -> None:
        """Be a model of these actions.

        Parameters
        ----------
        names : sequence of str
            As constraints and odds call them.
        widths : sequence of int
            Columns of each.

        Raises
        ------
        ValueError
            Another number of actions, other widths than the model was made with; a constraint names none of
            them.
        """
        if len(names) != self.n_actions:
            raise ValueError(
                f"X: the sequences have actions: {len(names)}, the model was made for "
                f"n_actions={self.n_actions}; make the model for these sequences (a categorical action "
                "counts once, whatever its levels)"
            )
        if self._given_widths not in (None, list(widths)):
            raise ValueError(
                f"action_widths: the model was made for {self._given_widths}, and the actions {list(names)} "
                f"have {list(widths)} column(s), one fewer than their levels; leave action_widths out"
            )
        self.action_names, self.action_widths = list(names), [int(width) for width in widths]
        if any(width > 1 for width in self.action_widths):
            self.__dict__.get("_arguments", {})["action_widths"] = self.action_widths
        self._constraints()

    @property
    def n_parents(self) -> int:
        """Candidate parents of a latent: lags times latents, and actions."""
        return self.lags * self.n_latents + self.n_actions

    @property
    def n_inputs(self) -> int:
        """Inputs of the transition: lags times latents, and the actions' columns."""
        return self.lags * self.n_latents + sum(self.action_widths)

    def by_input(self, edges: Tensor) -> Tensor:
        """Edges (..., parent) as gates of inputs (..., input): the columns of an action share one.

        Parameters
        ----------
        edges : Tensor (..., parent)
        """
        return edges if self.n_inputs == self.n_parents else edges[..., self.parent_of_input]

    def setup(
        self,
        n_restarts: int = 1,
        n_samples: int = 1000,
        missing: bool = False,
        feature_names: list[str] | None = None,
    ) -> None:
        """Allocate fresh parameters of the dense program (draws from torch's current random state).

        Parameters
        ----------
        n_restarts : int
            Leading dimension of every parameter.
        n_samples : int
            Sequences of the data.
        missing : bool
            Whether the encoder reads a mask.
        feature_names : list of str, optional
            Kept; no constraint names a feature.
        """
        check_sized(self)
        self.n_restarts, self.n_samples, self.missing = n_restarts, n_samples, missing
        self.feature_names = feature_names
        d = self.n_latents
        self.likelihood.setup(self.n_features, n_restarts)
        if missing:
            self.likelihood.check_filler(torch.zeros(n_restarts, 1, self.n_features))
        # `start_noise` takes half: normal noise begins at .225 of a feature's standard deviation
        self.likelihood.start_noise(torch.full((n_restarts, 1, self.n_features), 0.45))
        self.encoder: FrameEncoder | Smoother = FrameEncoder(
            n_restarts, self.n_features, d, self.hidden, missing
        )
        if self.smoother:
            self.encoder = Smoother(n_restarts, d, sum(self.action_widths), self.encoder)
        self.decoder = FrameDecoder(n_restarts, d, self.n_features, self.hidden)
        self.transition = SineTransition(n_restarts, self.n_inputs, d, self.units)
        self.log_sd = nn.Parameter(torch.full((n_restarts, 1, d), -1.0))
        self.gated = GatedTransition(n_restarts, self.n_inputs, d, self.gated_units, self.heteroscedastic)
        self.logits = nn.Parameter(torch.zeros(n_restarts, d, self.n_parents))
        self.register_buffer("axes", torch.eye(d).repeat(n_restarts, 1, 1))
        self.register_buffer("folded", torch.zeros(n_restarts, dtype=torch.bool))
        self.register_buffer("eta", torch.full((n_restarts,), 0.5))
        self.dense = True

    @torch.no_grad()
    def fold(self, axes: Tensor, logits: Tensor) -> None:
        """Turn the latents to new axes and give them edges; encoder, decoder and axes are frozen from here.

        Parameters
        ----------
        axes : Tensor (restart, latent, latent)
            ``latent_new = axes @ latent_old``, as `JacobianAxes.map`.
        logits : Tensor (restart, latent, parent)
            Where the relaxed edges begin.
        """
        self.axes.copy_(axes)
        self.folded.fill_(True)
        self.logits.copy_(logits)
        self.dense = False

    # ---- the programs --------------------------------------------------------------------------------------
    def model(self, batch: SequenceBatch) -> None:
        """The generative program: edges, the latents of each sequence, the cells of each frame."""
        with pyro.plate("restart", self.n_restarts, dim=-1):
            gates = self.edge_sites(batch)
            for name, prior in self.likelihood.priors().items():
                pyro.sample(name, prior)
        with pyro.plate("run", self.n_restarts, dim=-2):
            with self.sequences(batch), pyro.poutine.scale(scale=self.kl_weight * self.beta):
                z = pyro.sample("z", self.chain(batch, gates))
            with self.frames(batch):
                f = self.decode(z.flatten(1, 2))
                observed = None if batch.mask is None else batch.mask.flatten(0, 1)
                pyro.sample("x", self.likelihood.observation(f, observed), obs=batch.x.flatten(0, 1))

    def guide(self, batch: SequenceBatch) -> None:
        """The variational program: relaxed edges, and a Gaussian for the frames' latents."""
        with pyro.plate("restart", self.n_restarts, dim=-1):
            self.edge_guide(batch)
            for name, value in self.likelihood.values().items():
                pyro.sample(name, dist.Delta(value).to_event(1))
        with pyro.plate("run", self.n_restarts, dim=-2):
            with self.sequences(batch), pyro.poutine.scale(scale=self.kl_weight * self.beta):
                pyro.sample("z", self.posterior(batch))

    def edge_sites(self, batch: SequenceBatch) -> Tensor | None:
        """Edges of every sequence, (restart, sequence, latent, parent); None in the dense program.

        There is one graph: its many draws count as one.
        """
        if self.dense:
            return None
        probability = self.inclusion.unsqueeze(1).expand(-1, len(batch), *self.logits.shape[1:])
        with pyro.poutine.scale(scale=1 / len(batch)):
            # The guide's edges lie between 0 and 1, where the density is read as it stands.
            edges = dist.Bernoulli(probability, validate_args=False)
            gates = pyro.sample("G", edges.to_event(3))
        return gates.reshape(probability.shape)  # `Predictive` puts dimensions of one before the restart

    @property
    def has_odds(self) -> bool:
        """Whether single edges have odds of their own."""
        return self.edge_odds_time is not None or self.edge_odds_action is not None

    @property
    def inclusion(self) -> Tensor:
        """Prior probability of each edge, (restart, latent, parent); (restart, 1, 1) without odds."""
        eta = self.eta.view(-1, 1, 1)
        return torch.sigmoid(torch.logit(eta) + self.log_odds) if self.has_odds else eta

    @property
    def edge_probability(self) -> Tensor:
        """Probability of each edge in the guide, (restart, latent, parent); 1 and 0 where forced."""
        p = torch.sigmoid(self.logits)
        return torch.where(self.must, 1.0, torch.where(self.allowed, p, 0.0))

    def edge_guide(self, batch: SequenceBatch) -> None:
        """The edges' posterior q(G), relaxed so that it has gradients."""
        if not self.dense:
            # a draw for each sequence; the published code has one for a whole minibatch
            logits = self.logits.unsqueeze(1).expand(-1, len(batch), -1, -1)
            q = RelaxedEdges(logits, self.temperature, self.hard_gates, self.must, ~self.allowed)
            with pyro.poutine.scale(scale=1 / len(batch)):
                pyro.sample("G", q.to_event(3))

    def chain(self, batch: SequenceBatch, gates: Tensor | None) -> LatentChain:
        """Distribution of the latents of each sequence given its edges."""
        shape = (self.n_restarts, *batch.x.shape[:2])
        everywhere = torch.ones(shape, dtype=torch.bool, device=batch.x.device)

        def transition(inputs: Tensor) -> tuple[Tensor, Tensor]:
            if gates is None:
                return self.transition(inputs), self.log_sd.expand(*inputs.shape[:-1], -1)
            edges = gates
            # every step of a sequence has its edges
            if edges.dim() == 4 and inputs.shape[1] != edges.shape[1]:
                edges = edges.repeat_interleave(inputs.shape[1] // edges.shape[1], 1)
            return self.gated(inputs, self.by_input(edges))

        return LatentChain(
            transition,
            self.n_latents,
            self.lags,
            linked=everywhere if batch.linked is None else batch.linked.expand(shape),
            present=everywhere if batch.present is None else batch.present.expand(shape),
            actions=None if batch.actions is None else batch.actions.unsqueeze(0),
        )

    def posterior(self, batch: SequenceBatch) -> FullNormal | GaussMarkov:
        """q(z | x) of all frames, batch (restart, sequence), event (time, latent)."""
        if isinstance(self.encoder, Smoother):
            q = self.encoder(batch)
            return q if self.dense else q.turned(self.axes.unsqueeze(1))
        n, t = batch.x.shape[:2]
        observed = None if batch.mask is None else batch.mask.flatten(0, 1)
        loc, factor, log_det = self.encoder(batch.x.flatten(0, 1), observed)
        if not self.dense:
            loc = loc @ self.axes.mT
            factor = self.axes.unsqueeze(1) @ factor
            log_det = log_det + torch.linalg.slogdet(self.axes)[1].unsqueeze(1)
        loc, factor, log_det = (tensor.unflatten(1, (n, t)) for tensor in (loc, factor, log_det))
        return FullNormal(loc, factor, log_det, event_dims=2, present=batch.present)

    def decode(self, z: Tensor) -> Tensor:
        """Linear predictor (restart, frame, feature) of latents (restart, frame, latent)."""
        if not self.dense:
            z = z @ torch.linalg.inv(self.axes).mT
        return self.decoder(z)

    @staticmethod
    def sequences(batch: SequenceBatch) -> pyro.plate:
        """The plate of sequences with its minibatch scale."""
        here = torch.arange(len(batch), device=batch.x.device)
        return pyro.plate("data", batch.total, subsample=here, dim=-1)

    @staticmethod
    def frames(batch: SequenceBatch) -> pyro.plate:
        """The plate of all frames with its minibatch scale."""
        time = batch.x.shape[1]
        here = torch.arange(len(batch) * time, device=batch.x.device)
        return pyro.plate("frames", batch.total * time, subsample=here, dim=-1)

    # ---- between steps -------------------------------------------------------------------------------------
    def part(self, name: str) -> list[nn.Parameter]:
        """Parameters of one part of the programs.

        Parameters
        ----------
        name : {"frames", "dense", "gated", "edges"}
            Encoder, decoder and likelihood; the dense transition; the networks of the single latents; the
            relaxed edges.
        """
        groups: dict[str, list[nn.Parameter]] = {
            "dense": [*self.transition.parameters(), self.log_sd],
            "gated": list(self.gated.parameters()),
            "edges": [self.logits],
        }
        others = {id(p) for group in groups.values() for p in group}
        groups["frames"] = [p for p in self.parameters() if id(p) not in others]
        return groups[name]

    @torch.no_grad()
    def after_step(self, batch: SequenceBatch, progress: float) -> None:
        """Closed-form inclusion probability: the mode of its Beta posterior given the edges."""
        if self.dense:
            return
        # A learned rate stands in for the paper's bound on the number of edges, which nobody knows.
        free = self.allowed & ~self.must
        a, b = self.concentration
        n = float(free.sum())
        if self.has_odds:
            # all edges share one rate, and the odds multiply each edge's own
            mode = informed_eta_step(self.edge_probability, self.log_odds, a, b, free, shared=True)[:, 0, 0]
        else:
            expected = (self.edge_probability * free).sum((1, 2))
            mode = (a + expected - 1) / max(a + b + n - 2, 1e-6)
        # kept from 0 and 1, at which no edge may differ; Laplace's rule of succession goes as near
        self.eta.copy_(mode.clamp(1 / (n + 2), 1 - 1 / (n + 2)))

    def _constraints(self) -> None:
        """Masks and odds of all edges; those that name an action wait for `take_actions`."""
        masks = edge_masks(self)
        place = self.must.device if hasattr(self, "must") else masks.must.device
        self.register_buffer("must", masks.must.to(place))
        self.register_buffer("allowed", masks.allowed.to(place))
        # not in files: they follow from the arguments and the actions' names
        widths = torch.tensor([1] * (self.lags * self.n_latents) + self.action_widths)
        parents = torch.arange(self.n_parents).repeat_interleave(widths)
        self.register_buffer("parent_of_input", parents.to(place), persistent=False)
        self.register_buffer("log_odds", masks.log_odds.to(place), persistent=False)
