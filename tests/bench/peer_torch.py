# A plain PyTorch program of the kind that people write, as a peer in tests/bench.
#
#   peer_torch.py CASE=gpt2|llama|mlp THREADS=2 DTYPE=fp32|bf16 COMPILE=0|1 B= T= ACCUMULATE= STEPS=
#                 V= C= L= H= INNER= KV= TMAX= BIAS=0|1 CLIP=  (mlp: IN= HIDDEN= OUT=)  BLOCK=
#
# Prints "name …", then "steps N SECONDS" for every BLOCK optimizer steps (the first line is one
# step); "skip REASON" where this PyTorch cannot do it.  Same arithmetic as ours: pre-norm blocks,
# tied output matrix, mean cross-entropy, AdamW (fused where there is one), tokens below 256.
import math
import sys
import time

a = dict(w.split("=", 1) for w in sys.argv[1:])


def num(key, default=0):
    return int(a.get(key, default))


try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except Exception as e:  # an import may fail in ways of its own
    print("skip no torch here:", str(e).splitlines()[0], flush=True)
    sys.exit(0)

torch.set_num_threads(num("THREADS", 1))
torch.manual_seed(1337)
BIAS = a.get("BIAS", "1") == "1"
bf16 = a.get("DTYPE") == "bf16"
compiled = a.get("COMPILE") == "1"


def causal(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    T = q.shape[-2]
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    score = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
    return F.softmax(score.masked_fill(hidden, -math.inf), -1) @ v


class Norm(nn.Module):
    def __init__(self, C):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(C))
        self.bias = nn.Parameter(torch.zeros(C)) if BIAS else None

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, 1e-5)


class RMSNorm(nn.Module):
    def __init__(self, C):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(C))

    def forward(self, x):
        h = x.float()
        return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


class GPTBlock(nn.Module):
    def __init__(self, C, H):
        super().__init__()
        self.H = H
        self.n1, self.n2 = Norm(C), Norm(C)
        self.qkv, self.out = nn.Linear(C, 3 * C, BIAS), nn.Linear(C, C, BIAS)
        self.up, self.down = nn.Linear(C, 4 * C, BIAS), nn.Linear(4 * C, C, BIAS)
        self.approximate = a.get("GELU", "tanh")

    def forward(self, x, rope):
        B, T, C = x.shape
        heads = [t.view(B, T, self.H, C // self.H).transpose(1, 2)
                 for t in self.qkv(self.n1(x)).split(C, 2)]
        x = x + self.out(causal(*heads).transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate=self.approximate))


def turn(x, rope):
    cos, sin = rope
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class LlamaBlock(nn.Module):
    def __init__(self, C, H):
        super().__init__()
        self.H, self.KV, self.D = H, num("KV", H), C // H
        inner = num("INNER")
        self.n1, self.n2 = RMSNorm(C), RMSNorm(C)
        self.q, self.k = nn.Linear(C, C, False), nn.Linear(C, self.KV * self.D, False)
        self.v, self.out = nn.Linear(C, self.KV * self.D, False), nn.Linear(C, C, False)
        self.gate, self.up = nn.Linear(C, inner, False), nn.Linear(C, inner, False)
        self.down = nn.Linear(inner, C, False)

    def forward(self, x, rope):
        B, T, C = x.shape
        h = self.n1(x)
        q = turn(self.q(h).view(B, T, self.H, self.D).transpose(1, 2), rope)
        k = turn(self.k(h).view(B, T, self.KV, self.D).transpose(1, 2), rope)
        v = self.v(h).view(B, T, self.KV, self.D).transpose(1, 2)
        if self.KV < self.H:
            k = k.repeat_interleave(self.H // self.KV, 1)
            v = v.repeat_interleave(self.H // self.KV, 1)
        x = x + self.out(causal(q, k, v).transpose(1, 2).reshape(B, T, C))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        V, C, H = num("V"), num("C"), num("H")
        self.llama = a["CASE"] == "llama"
        self.wte = nn.Embedding(V, C)
        if self.llama:
            D, T = C // H, num("T")
            angle = torch.outer(torch.arange(T), 1e4 ** (-torch.arange(0, D, 2) / D))
            self.register_buffer("cos", torch.cat((angle, angle), -1).cos())
            self.register_buffer("sin", torch.cat((angle, angle), -1).sin())
        else:
            self.wpe = nn.Embedding(num("TMAX"), C)
        block = LlamaBlock if self.llama else GPTBlock
        self.blocks = nn.ModuleList([block(C, H) for _ in range(num("L"))])
        self.norm = RMSNorm(C) if self.llama else Norm(C)
        self.head = nn.Linear(C, V, False)
        self.head.weight = self.wte.weight
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, x, y):
        h = self.wte(x)
        rope = None
        if self.llama:
            rope = (self.cos, self.sin)
        else:
            h = h + self.wpe(torch.arange(x.shape[1]))
        for b in self.blocks:
            h = b(h, rope)
        logits = self.head(self.norm(h))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(num("IN"), num("HIDDEN")), nn.Linear(num("HIDDEN"), num("OUT"))

    def forward(self, x, y):
        return F.cross_entropy(self.b(F.relu(self.a(x))), y)


def batch():
    if a["CASE"] == "mlp":
        B = num("B")
        return torch.rand(B, num("IN")), torch.randint(0, num("OUT"), (B,))
    ids = torch.randint(0, min(256, num("V")), (num("B"), num("T") + 1))
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def make_optimizer(model):
    conf = dict(lr=1e-4, betas=(0.9, 0.999), weight_decay=0.1)
    if not compiled or a["CASE"] != "mlp":
        try:
            return torch.optim.AdamW(model.parameters(), fused=True, **conf), "fused AdamW"
        except (RuntimeError, TypeError):
            pass
    return torch.optim.AdamW(model.parameters(), **conf), "AdamW"


model = MLP() if a["CASE"] == "mlp" else LM()
optimizer, which = make_optimizer(model)
print("name PyTorch %s %s" % (torch.__version__, "compiled" if compiled else "eager"))
print("# %s, %d parameters" % (which, sum(p.numel() for p in model.parameters())), flush=True)
run = model
if compiled:
    if not hasattr(torch, "compile"):
        print("skip PyTorch %s has no torch.compile" % torch.__version__, flush=True)
        sys.exit(0)
    run = torch.compile(model)
data = [batch() for _ in range(8)]
accumulate, clip = num("ACCUMULATE", 1), float(a.get("CLIP", 0))


def step(i):
    for k in range(accumulate):
        x, y = data[(i * accumulate + k) % len(data)]
        if bf16:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = run(x, y)
        else:
            loss = run(x, y)
        (loss / accumulate if accumulate > 1 else loss).backward()
    if clip > 0:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


n, block, done = num("STEPS"), num("BLOCK", 1), 0
while done < n:
    m = 1 if done == 0 else min(block, n - done)
    start = time.perf_counter()
    try:
        for i in range(done, done + m):
            loss = step(i)
    except Exception as e:
        if done == 0 and compiled:
            print("skip torch.compile:", (str(e).splitlines() or [""])[0], flush=True)
            sys.exit(0)
        raise
    print("steps %d %.9f" % (m, time.perf_counter() - start), flush=True)
    done += m
print("# last loss %.4f" % loss, flush=True)
