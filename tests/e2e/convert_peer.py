#!/usr/bin/python3
"""What test_convert.sh needs of the Python world.

    make DATA DIR     other programs' weight files from the debug states in DATA, in DIR
    logits DATA DIR…  each DIR's safetensors, through a GPT-2 or Llama of this file's own: torch's
                      logits against the stored ones, to 1e-5 (status 77: no torch here)
    h5 FILE NAMES…    full.h5 as h5py sees it has these datasets (77: no h5py)
    loss DATA NAME    the loss that is stored with a debug state
"""
import json
import math
import struct
import sys


def read(path):
    """safetensors: name -> (dtype, shape, bytes)"""
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head, data = json.loads(f.read(n)), f.read()
    head.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], data[slice(*v["data_offsets"])]) for k, v in head.items()}


def write(path, tensors):
    head, blobs, at = {}, [], 0
    for name, (dtype, shape, b) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(b)]}
        blobs.append(b)
        at += len(b)
    h = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h + b"".join(blobs))


def weights(path):
    return {k[7:]: v for k, v in read(path).items() if k.startswith("weight.")}


def bf16(b):
    """rounded to nearest, ties to even"""
    words = struct.unpack("<%dI" % (len(b) // 4), b)
    return struct.pack("<%dH" % len(words),
                       *[(w + 0x7FFF + (w >> 16 & 1)) >> 16 & 0xFFFF for w in words])


GPT2_ORDER = ["ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias",
              "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight", "ln_2.bias",
              "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias"]


def make_gpt2(data, out):
    w = weights(data + "/gpt2_tiny_debug.safetensors")
    V, C, T, H, L = 256, 32, 32, 4, 2
    # nanoGPT's names, in two files with an index; compiled, and with the mask that some keep
    nano = {"_orig_mod.transformer." + k: v for k, v in w.items()}
    nano["_orig_mod.lm_head.weight"] = w["wte.weight"]
    nano["_orig_mod.transformer.h.0.attn.bias"] = ("U8", [1, 1, 2, 2], b"\1\0\1\1")
    names, where = list(nano), {}
    for i, part in enumerate((names[:9], names[9:])):
        file = "part-%d.safetensors" % i
        write(out + "/" + file, {k: nano[k] for k in part})
        where.update({k: file for k in part})
    with open(out + "/nano.safetensors.index.json", "w") as f:
        json.dump({"metadata": {}, "weight_map": where}, f)
    # llm.c, with a padded vocabulary
    flat = [w["wte.weight"][2] + b"\x7f" * (4 * 128 * C), w["wpe.weight"][2]]
    for n in GPT2_ORDER:
        flat += [w["h.%d.%s" % (l, n)][2] for l in range(L)]
    flat += [w["ln_f.weight"][2], w["ln_f.bias"][2]]
    for version, name in ((3, "llmc.bin"), (5, "llmc_bf16.bin")):
        head = [20240326, version, T, V, L, H, C, V + 128] + [0] * 248
        with open(out + "/" + name, "wb") as f:
            f.write(struct.pack("<256i", *head))
            f.write(b"".join(flat if version == 3 else map(bf16, flat)))


def make_llama(data, out):
    w = weights(data + "/llama_tiny_debug.safetensors")
    V, T, C, F, H, KV, L = 256, 32, 32, 88, 4, 2, 2
    write(out + "/meta.safetensors", w)
    layer = lambda *names: [w["layers.%d.%s.weight" % (l, n)][2] for n in names for l in range(L)]
    attention = ["attention." + n for n in ("wq", "wk", "wv", "wo")]
    mlp = ["feed_forward." + n for n in ("w1", "w2", "w3")]
    tables = b"\0" * (2 * 4 * T * (C // H // 2))
    embedding, norm = w["tok_embeddings.weight"][2], w["norm.weight"][2]
    with open(out + "/legacy.bin", "wb") as f:
        f.write(struct.pack("<7i", C, F, L, H, KV, V, T) + embedding +
                b"".join(layer("attention_norm", *attention, "ffn_norm", *mlp)) + norm + tables)
    with open(out + "/v1.bin", "wb") as f:
        f.write((struct.pack("<Ii7iB", 0x616B3432, 1, C, F, L, H, KV, V, T, 1)).ljust(256, b"\0"))
        f.write(b"".join(layer("attention_norm", "ffn_norm")) + norm + embedding +
                b"".join(layer(*attention, *mlp)))
    with open(out + "/untied.bin", "wb") as f: # the last matrix once more, as one of its own
        f.write(struct.pack("<7i", C, F, L, H, KV, -V, T) + embedding +
                b"".join(layer("attention_norm", *attention, "ffn_norm", *mlp)) + norm + tables +
                embedding)


def torch_weights(folder):
    import torch
    kinds = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
    try:
        with open(folder + "/model.safetensors.index.json") as f:
            files = sorted(set(json.load(f)["weight_map"].values()))
    except FileNotFoundError:
        files = ["model.safetensors"]
    out = {}
    for file in files:
        for name, (dtype, shape, b) in read(folder + "/" + file).items():
            t = torch.frombuffer(bytearray(b), dtype=kinds[dtype]).reshape(shape)
            out[name] = t.to(torch.float64)
    with open(folder + "/config.json") as f:
        return out, json.load(f)


def attend(q, k, v):
    import torch
    T = q.shape[-2]
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    s = s.masked_fill(~torch.tril(torch.ones(T, T, dtype=torch.bool)), float("-inf"))
    return (s.softmax(-1) @ v).transpose(1, 2).flatten(-2)


def gpt2(w, c, x):
    """Conv1D: x W + b"""
    import torch.nn.functional as F
    assert c["architectures"] == ["GPT2LMHeadModel"] and c["activation_function"] == "gelu_new"
    assert "lm_head.weight" not in w and c["tie_word_embeddings"]
    p = {k[len("transformer."):]: v for k, v in w.items()}
    C, H, eps = c["n_embd"], c["n_head"], c["layer_norm_epsilon"]
    heads = lambda t: t.view(*t.shape[:2], H, C // H).transpose(1, 2)
    norm = lambda h, n: F.layer_norm(h, (C,), p[n + ".weight"], p[n + ".bias"], eps)
    conv = lambda h, n: h @ p[n + ".weight"] + p[n + ".bias"]
    h = p["wte.weight"][x] + p["wpe.weight"][: x.shape[1]]
    for l in range(c["n_layer"]):
        b = "h.%d." % l
        qkv = conv(norm(h, b + "ln_1"), b + "attn.c_attn").split(C, 2)
        h = h + conv(attend(*map(heads, qkv)), b + "attn.c_proj")
        a = F.gelu(conv(norm(h, b + "ln_2"), b + "mlp.c_fc"), approximate="tanh")
        h = h + conv(a, b + "mlp.c_proj")
    return norm(h, "ln_f") @ p["wte.weight"].T


def llama(w, c, x):
    """rotary positions over a head's halves"""
    import torch
    import torch.nn.functional as F
    assert c["architectures"] == ["LlamaForCausalLM"] and c["hidden_act"] == "silu"
    H, KV, D = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    B, T = x.shape
    inv = c["rope_theta"] ** -(torch.arange(0, D, 2, dtype=torch.float64) / D)
    angle = torch.outer(torch.arange(T, dtype=torch.float64), inv)
    cos, sin = (torch.cat([t, t], -1) for t in (angle.cos(), angle.sin()))
    turn = lambda t: t * cos + torch.cat([-t[..., D // 2:], t[..., : D // 2]], -1) * sin
    norm = lambda h, n: h * torch.rsqrt((h * h).mean(-1, keepdim=True) + c["rms_norm_eps"]) * w[n]
    h = w["model.embed_tokens.weight"][x]
    for l in range(c["num_hidden_layers"]):
        m = lambda n: w["model.layers.%d.%s.weight" % (l, n)]
        a = norm(h, "model.layers.%d.input_layernorm.weight" % l)
        q, k, v = (F.linear(a, m("self_attn.%s_proj" % n)).view(B, T, -1, D).transpose(1, 2)
                   for n in "qkv")
        k, v = (t.repeat_interleave(H // KV, 1) for t in (turn(k), v))
        h = h + F.linear(attend(turn(q), k, v), m("self_attn.o_proj"))
        a = norm(h, "model.layers.%d.post_attention_layernorm.weight" % l)
        gate = F.silu(F.linear(a, m("mlp.gate_proj"))) * F.linear(a, m("mlp.up_proj"))
        h = h + F.linear(gate, m("mlp.down_proj"))
    head = w["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"]
    return norm(h, "model.norm.weight") @ head.T


def logits(data, folder):
    try:
        import torch
    except ImportError:
        sys.exit(77)
    w, c = torch_weights(folder)
    debug = read("%s/%s_tiny_debug.safetensors" % (data, c["model_type"]))
    get = lambda n, t: torch.frombuffer(bytearray(debug[n][2]), dtype=t).reshape(debug[n][1])
    got = {"gpt2": gpt2, "llama": llama}[c["model_type"]](w, c, get("x", torch.int32).long())
    far = (got - get("logits", torch.float32)).abs().max().item()
    print("logits differ by %.3g" % far)
    assert far < (0.05 if c["torch_dtype"] == "bfloat16" else 1e-5)


def h5(path, names):
    try:
        import h5py
    except ImportError:
        sys.exit(77)
    with h5py.File(path, "r") as f:
        for n in names:
            d = f[n]
            assert d.shape and abs(float(d[...].astype("float64").sum())) < 1e9, n
            print(n, d.shape, d.dtype, d.attrs["layout"])


if __name__ == "__main__":
    what, args = sys.argv[1], sys.argv[2:]
    if what == "make":
        make_gpt2(*args)
        make_llama(*args)
    elif what == "loss":
        print("%.9f" % struct.unpack("<f", read(args[0] + "/%s_tiny_debug.safetensors" % args[1])
                                     ["loss"][2])[0])
    elif what == "logits":
        for folder in args[1:]:
            logits(args[0], folder)
    else:
        h5(args[0], args[1:])
