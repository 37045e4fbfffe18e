#!/usr/bin/env python3
"""`spillway trace import` against arrays of numpy, and h5py, which reads what came of them: ids, layers of an archive, padding, counts,
damage.

usage: import_arrays_oracle.py SPILLWAY SCRATCH ROOT
"""
import json
import pathlib
import pickle
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from imports import (COUNTS, OUT, SCRATCH, SPILLWAY, check, check_counts, check_ids, choose, finish, fresh, histogram,
    imported, refused, rng, run, save)


# --- Arrays ---

def test_array_ids():
    folder, options = fresh("array"), ("--experts", 300, "--top-k", 3)
    steps, ranks, sequences, tokens, layers, k = shape = (2, 3, 4, 5, 6, 3)
    names = ("steps", "ranks", "sequences", "tokens", "layers", "k")
    full = choose(*shape[:-1], experts=300, top_k=k)
    for trial in range(16):  # every set of axes, in both orders of storage
        axes = [a for i, a in enumerate(names) if i > 2 or trial // 2 >> i & 1]
        ids = full[tuple(slice(None) if a in axes else 0 for a in names)]
        order = rng.permutation(len(axes))
        stored = np.ascontiguousarray(ids.transpose(order)) if trial % 2 else np.asfortranarray(ids.transpose(order))
        dtype = ("i2", "u2", "i4", ">i4", "i8", "u8", ">u2")[trial % 7]
        path = save("ids.npy", stored.astype(dtype))
        want = full[tuple(slice(None) if a in axes else slice(0, 1) for a in names)]
        want = want.reshape(*want.shape[:2], -1, layers, k)
        with imported("array", [path], *options, "--axes", ",".join(axes[i] for i in order), "--order", "descending_weight") as h:
            check_ids(h, want, range(layers), want.shape[1] if "ranks" in axes else None,
                      sequence=tokens if "sequences" in axes else None)
            check(h["tokens/expert_id"].attrs["order"] == "descending_weight" and list(h["steps/phase"][:]) == [4] * len(want), "order")
    # one file a step (of different length), a rank, a layer
    files = [save(f"step{s}.npy", full[s, 0, 0, :s + 2]) for s in range(2)]
    with imported("array", files, *options, "--axes", "tokens,layers,k", "--files", "steps", "--phase", "decode") as h:
        check_ids(h, [[full[s, 0, 0, :s + 2]] for s in range(2)], range(layers))
        check(list(h["steps/phase"][:]) == [3, 3], "phase")
    files = [save(f"rank{r}.npy", full[0, r, 0]) for r in range(ranks)]
    with imported("array", files, *options, "--axes", "tokens,layers,k", "--files", "ranks", "--ranks", 3) as h:
        check_ids(h, [full[0, :, 0]], range(layers), ranks)
    files = [save(f"layer{l}.npy", full[0, 0, 0, :, l]) for l in range(layers)]
    with imported("array", files, *options, "--axes", "tokens,k", "--files", "layers", "--layers", "3:9") as h:
        check_ids(h, [full[0, :1, 0]], range(3, 9))
    # source ranks cut from the tokens
    path = save("ids.npy", full[0, 0])  # [sequences][tokens][layers][k]
    with imported("array", [path], *options, "--axes", "sequences,tokens,layers,k", "--tokens-per-rank", 10, "--ranks", 2) as h:
        check_ids(h, [full[0, 0].reshape(2, 10, layers, k)], range(layers), 2, sequence=5)
    refused("does not cut 4 sequences of 5 tokens", "array", [path], *options, "--axes", "sequences,tokens,layers,k",
            "--tokens-per-rank", 4)
    refused("--ranks 5, but the array has 2", "array", [path], *options, "--axes", "sequences,tokens,layers,k", "--tokens-per-rank",
            10, "--ranks", 5)
    # one array of an .npz, top-1 without an axis
    np.savez_compressed(folder / "request.npz", request_id=np.asarray("r1"), routed_experts=full[0, 0, 0, :, :, 0])
    with imported("array", [folder / "request.npz"], "--experts", 300, "--top-k", 1, "--axes", "tokens,layers", "--array",
                  "routed_experts") as h:
        check_ids(h, [full[0, :1, 0, :, :, :1]], range(layers))
    refused("array 'other' is missing", "array", [folder / "request.npz"], *options, "--axes", "tokens,layers,k", "--array", "other")
    refused("the arrays of an .npz are its layers; --array names one", "array", [folder / "request.npz"], *options, "--axes", "tokens,layers,k", code=2)


def test_layers_of_an_npz():
    """One array a layer: ids, or the router logits that Transformers hands out; the number in the name is the layer's."""
    fresh("array")
    options = ("--experts", 16, "--top-k", 3)
    logits = rng.normal(size=(4, 20, 16))
    logits[:, :, 5] = logits[:, :, 9]  # equal ones: the lower number first
    logits[1, 3, :8] = -np.inf
    path = SCRATCH / "array" / "logits.npz"
    for save_all, dtype in ((np.savez, "f4"), (np.savez_compressed, "f2"), (np.savez, ">f8")):
        given = [x.astype(dtype) for x in logits]
        save_all(path, *given)  # arr_0, arr_1 ...
        want = np.stack([np.argsort(-x.astype("f8"), axis=1, kind="stable")[:, :3] for x in given], axis=1)
        with imported("array", [path], *options, "--axes", "tokens,experts") as h:
            check_ids(h, [[want]], range(4))
            check(h["tokens/expert_id"].attrs["order"] == "descending_weight", "the order of logits")
    with imported("array", [path], *options, "--axes", "tokens,experts", "--layers", "3,5,7,9", "--tokens-per-rank", 5) as h:
        check_ids(h, [want.reshape(4, 5, 4, 3)], (3, 5, 7, 9), 4)
    # batches of sequences, and steps of several files
    np.savez(path, *logits.reshape(4, 2, 10, 16).astype("f4"))
    other = SCRATCH / "array" / "more.npz"
    np.savez(other, *logits[:, ::-1].reshape(4, 2, 10, 16).astype("f4"))
    want = np.stack([np.argsort(-x.astype("f4"), axis=1, kind="stable")[:, :3] for x in logits], axis=1)
    with imported("array", [path, other], *options, "--axes", "sequences,tokens,experts", "--files", "steps") as h:
        check_ids(h, [[want], [want[::-1]]], range(4), sequence=10)
    # ids, in the order of the numbers and not of the names
    np.savez(path, **{f"model.layers.{l}.mlp.gate": want[:, i] for i, l in enumerate((2, 3, 10))})
    with imported("array", [path], *options, "--axes", "tokens,k") as h:
        check_ids(h, [[want[:, :3]]], (2, 3, 10))
    ids = want[:, 0]
    for arrays, message, axes in (
            ({"gate": ids}, "array 'gate' has no number in its name", "tokens,k"),
            ({"a1": ids, "b1": ids}, "arrays 'a1' and 'b1' have one number", "tokens,k"),
            ({"a1": ids[:0]}, "no tokens", "tokens,k"),
            ({"a1": logits[0]}, "(router logits have the axes tokens,experts)", "tokens,k"),
            ({"a1": ids}, "names 2 of floats, the router's logits", "tokens,experts"),
            ({"a1": np.where(np.arange(16) == 3, np.nan, logits[0])}, "the logit of expert 3 is no number", "tokens,experts"),
            ({"a1": logits[0, :, :9]}, "axis experts has 9 elements", "tokens,experts")):
        np.savez(path, **arrays)
        refused(message, "array", [path], *options, "--axes", axes)
    refused("the arrays of an .npz are its layers", "array", [path], *options, "--axes", "layers,tokens,k", code=2)
    refused("which have no k", "array", [path], *options, "--axes", "tokens,experts,k", code=2)
    np.savez(path, ids, ids), np.savez(other, ids)
    refused("every file must have one a layer", "array", [path, other], *options, "--axes", "tokens,k", "--files", "steps")


def test_array_layers():
    """Layers without experts, padding, and what must not be guessed."""
    fresh("array")
    options = ("--experts", 16, "--top-k", 2, "--axes", "tokens,layers,k")
    ids = choose(50, 5, experts=16, top_k=2)
    ids[:, [0, 3]] = 0
    path = save("ids.npy", ids)
    refused("layer 0, rank 0: all zeros: a layer without experts? name it in --dense-layers 0", "array", [path], *options)
    refused("layer 3, rank 0: all zeros", "array", [path], *options, "--dense-layers", "0")
    with imported("array", [path], *options, "--dense-layers", "0,3") as h:
        check_ids(h, [[ids[:, [1, 2, 4]]]], (1, 2, 4))
    with imported("array", [path], *options, "--layers", "10:15", "--dense-layers", "10,13") as h:
        check_ids(h, [[ids[:, [1, 2, 4]]]], (11, 12, 14))
    refused("layer 1, rank 0: is among --dense-layers, but holds", "array", [path], *options, "--dense-layers", "0,1,3")
    refused("there is no layer 9", "array", [path], *options, "--dense-layers", "0,3,9", code=2)
    refused("5 layers; --layers names 6", "array", [path], *options, "--dense-layers", "0,3", "--layers", "0:6")
    refused("--layers names 4 layers; there are more", "array", [path], *options, "--dense-layers", "0,3", "--layers", "0:4")
    refused("must rise", "array", [path], *options, "--layers", "3,2,1", code=2)
    top1 = save("top1.npy", ids[:, :, 0])
    refused("layer 0, rank 0: all zeros", "array", [top1], "--experts", 16, "--top-k", 1, "--axes", "tokens,layers")
    # top-1 that is expert 0 in one rank and not in another is no dense layer
    ids[:, 0], ids[:, 3] = [3, 5], [0, 1]
    ids[7:9] = -1
    path = save("ids.npy", ids)
    refused("element 70 of the array is -1; must be 0 to 15 (what stands for no choice is said by --missing)", "array", [path], *options)
    with imported("array", [path], *options, "--missing", "-1") as h:
        check_ids(h, [[ids]], range(5))
    for value, message in ((16, "is 16; must be 0 to 15"), (1 << 40, "must be 0 to 15"), (-(1 << 40), "must be 0 to 15")):
        bad = choose(50, 5, experts=16, top_k=2).astype("i8")
        bad[11, 2, 1] = value
        refused(f"step 0, layer 2, rank 0: element 115 of the array {message if value == 16 else ''}".strip(), "array",
                [save("bad.npy", bad)], *options)
    bad = np.full((4, 2, 2), (1 << 64) - 1, "u8")
    refused("above 2^63", "array", [save("bad.npy", bad)], *options)
    bad = choose(50, 5, experts=16, top_k=2)
    bad[11, 2] = 7
    refused("layer 2, rank 0: token 11 chooses expert 7 twice", "array", [save("bad.npy", bad)], *options)
    good = [save("ids.npy", choose(50, 5, experts=16, top_k=2))]
    rest = options[:4]
    for axes, message in (("tokens,layer,k", "'layer' is no axis"), ("tokens,tokens,k", "'tokens' is there twice"), ("", "'' is no axis"),
                          ("tokens,layers,k,", "'' is no axis"), ("layers,k", "ids need tokens and k"), ("tokens,k", "layers are missing"),
                          ("layers,k,experts", "counts of experts have no tokens"), ("tokens,layers", "ids need tokens and k")):
        refused(message, "array", good, *rest, "--axes", axes, code=2)
    refused("names 3 of floats, the router's logits", "array", good, *rest, "--axes", "tokens,layers,experts")
    refused("3 axes of whole numbers; --axes tokens,steps,layers,k names 4", "array", good, *rest, "--axes", "tokens,steps,layers,k")
    refused("axis k has 5 elements; --top-k says otherwise", "array", good, *rest, "--axes", "tokens,layers,k".replace("layers,k", "k,layers"))
    refused("--files must say", "array", good + [save("more.npy", ids)], *options, code=2)
    refused("files may be steps, ranks or layers", "array", good, *options, "--files", "k", code=2)
    refused("the first file has 5", "array", good + [save("more.npy", ids[:, :4])], *options, "--files", "steps", "--missing", "-1")
    refused("there is an axis of ranks", "array", good, *rest, "--axes", "ranks,layers,tokens,k", "--tokens-per-rank", 2, code=2)


def test_padding():
    """Rows of a batch without a choice: counted and said, or left out. The oracle is the same batch without them."""
    fresh("array")
    shape, lengths = ("--experts", 16, "--top-k", 2), (9, 4, 1)
    ids = choose(3, 9, 5, experts=16, top_k=2)
    for s, length in enumerate(lengths):
        ids[s, length:] = -1
    ids[0, 2, 1] = ids[0, 3, 4, 0] = -1  # a token without a choice in one layer stays
    options = (*shape, "--missing", "-1", "--axes", "sequences,tokens,layers,k")
    path = save("padded.npy", ids)
    lost = int((ids < 0).sum())
    with imported("array", [path], *options) as h:
        check(h["steps/num_tokens"][0] == 27, "padding counts")
    code, _, error = run(SPILLWAY, "trace", "import", "array", path, "--output", OUT, *options)
    check(code == 0 and f"{lost} of {ids.size} choices are missing" in error and "--drop-padding" in error, error)
    code, out, error = run(SPILLWAY, "trace", "info", OUT)
    check(code == 0 and f"missing    {lost} of {ids.size} choices" in out, out)
    code, out, error = run(SPILLWAY, "trace", "info", OUT, "--format", "json")
    check(json.loads(out)["trace"]["missing"] == lost and json.loads(out)["trace"]["choices"] == ids.size, out)
    whole = np.concatenate([ids[s, :length] for s, length in enumerate(lengths)])
    with imported("array", [path], *options, "--drop-padding") as h:
        check_padded(h, whole, lengths)
    many = (*shape, "--axes", "tokens,layers,k", "--missing", "-1", "--drop-padding")
    with imported("array", [save("flat.npy", whole)], *many) as h:
        check((h["counts/routed"][0] == np.stack([histogram(whole[:, l], 16) for l in range(5)])).all(), "nothing to drop")
    # ranks of a step keep what is theirs
    with imported("array", [path], *options, "--tokens-per-rank", 9, "--drop-padding") as h:
        check((h["tokens/source_rank"][:] == np.repeat(np.arange(3), lengths)).all(), "ranks")
        check_padded(h, whole, lengths)
    refused("no token of the step has a choice", "array", [save("none.npy", np.full_like(ids, -1))], *options, "--drop-padding")
    refused("--drop-padding", "count-jsonl", [path], *shape, "--drop-padding", code=2)


def check_padded(h, whole, lengths):
    got = h["tokens/expert_id"][:].astype("i4")
    got[got == h["tokens/expert_id"].attrs["missing_value"]] = -1
    check(got.shape == whole.shape and (got == whole).all(), "ids without padding")
    check((h["tokens/sequence"][:] == np.repeat(np.arange(len(lengths)), lengths)).all(), "sequences without padding")
    check((h["tokens/position"][:] == np.concatenate([np.arange(n) for n in lengths])).all(), "positions without padding")
    check((h["counts/routed"][0] == np.stack([histogram(whole[:, l], 16) for l in range(5)])).all(), "counts without padding")


def test_array_counts():
    """Loads of experts: [steps][layers][experts], with or without ranks."""
    fresh("array")
    counts = np.zeros((3, 2, 4, 8), "i4")  # [step][rank][layer][expert]
    for at in np.ndindex(counts.shape[:-1]):
        counts[at] = histogram(choose(20 + at[0] + 3 * at[1], experts=8, top_k=2), 8)
    options = (*COUNTS, "--axes")
    with imported("array", [save("counts.npy", counts.sum(1))], *options, "steps,layers,experts", "--layers", "1:5") as h:
        check_counts(h, counts.sum(1), range(1, 5), range(3))
    with imported("array", [save("counts.npy", counts.transpose(3, 1, 2, 0))], *options, "experts,ranks,layers,steps", "--ranks", 2) as h:
        check_counts(h, counts.sum(1), range(4), range(3), counts)
    with imported("array", [save("counts.npy", counts[0, 0])], *options, "layers,experts") as h:
        check_counts(h, counts[:1, 0], range(4), range(1))
    zero = counts.sum(1)
    zero[:, 2] = 0
    path = save("counts.npy", zero)
    refused("layer 2, rank 0: all zeros", "array", [path], *options, "steps,layers,experts")
    with imported("array", [path], *options, "steps,layers,experts", "--dense-layers", "2") as h:
        check_counts(h, zero[:, [0, 1, 3]], (0, 1, 3), range(3))
    zero[1, 1, 0] += 2
    refused("step 1, layer 1, rank 0: counts of", "array", [save("counts.npy", zero)], *options, "steps,layers,experts", "--dense-layers", "2")
    refused("axis experts has 7", "array", [save("counts.npy", zero[:, :, :7])], *options, "steps,layers,experts")


def test_array_damage():
    """Bytes that are no array."""
    fresh("array")
    options = ("--experts", 16, "--top-k", 2, "--axes", "tokens,layers,k")
    path = save("ids.npy", choose(40, 3, experts=16, top_k=2))
    whole = path.read_bytes()
    imported("array", [path], *options).close()

    def damaged(message, data):
        path.write_bytes(data)
        refused(message, "array", [path], *options)

    for part in (0, 5, 9, 11, 60, 127, len(whole) - 1):
        damaged("ids.npy: ", whole[:part])
    damaged("but 961 bytes follow", whole + b"x")
    damaged("is no .npy array", b"\x93NUMPX" + whole[6:])
    for saved in (pickle.dumps({"ids": [1, 2]}), b"PK\x03\x04" + whole):  # of torch.save before and since 1.6
        damaged("is no .npy array, but a pickle or a file of torch.save", saved)
    damaged("other than 1, 2 and 3", whole[:6] + b"\x04" + whole[7:])

    def header(text):
        return whole[:8] + len(text).to_bytes(2, "little") + text.encode() + whole[128:]

    good = "{'descr': '<i4', 'fortran_order': False, 'shape': (40, 3, 2), }"
    path.write_bytes(header(good))
    imported("array", [path], *options).close()
    for old, new, message in (("(40, 3, 2)", "(1099511627776, 3, 2)", "but 960 bytes follow"), ("(40, 3, 2)", "(40, 3, -2)", "whole numbers"),
                              ("(40, 3, 2)", "(4294967296, 4294967296, 4294967296)", "overflows"), ("(40, 3, 2)", "(40, 3, 2", "whole numbers"),
                              ("(40, 3, 2)", "[40, 3, 2]", "tuple"), ("(40, 3, 2)", "(" + "1, " * 9 + ")", "more than 8 axes"),
                              ("(40, 3, 2)", "(40, 6)", "2 axes"), ("(40, 3, 2)", "(99999999999999999999, 0, 2)", "whole numbers|not closed"),
                              ("<i4", "|O", "elements of type '|O'"), ("<i4", "<f4", "of floats; --axes"), ("<i4", "<c8", "elements of type '<c8'"), ("<i4", "<i3", "elements of type"),
                              ("'<i4'", "[('a', '<i4')]", "no plain number"), ("False", "0", "True or False"), ("'shape'", "'shapes'", "once each"),
                              ("'fortran_order': False, ", "", "and nothing else"), ("'descr': '<i4', ", "'descr': '<i4', 'descr': '<i4', ", "once each"),
                              (", }", ", } x", "and nothing else"), ("{", "(", "dictionary"), ("<i4", "<i4\\x00", "no plain number")):
        path.write_bytes(header(good.replace(old, new)))
        code, _, error = run(SPILLWAY, "trace", "import", "array", path, "--output", OUT, *options)
        check(code == 3 and any(m in error for m in message.split("|")) and error.count("\n") == 1, f"{new}: {code} {error}")
    damaged("no tokens", header(good.replace("(40, 3, 2)", "(0, 3, 2)"))[:10 + len(good) - 1])
    damaged("axes", header(good.replace("(40, 3, 2)", "()"))[:10 + len(good) - 8 + 4])
    refused("is no regular file", "array", ["/dev/zero"], *options)


test_array_ids()
test_layers_of_an_npz()
test_array_layers()
test_padding()
test_array_counts()
test_array_damage()
finish()
