"""ResNet-18 and ViT-Ti/16 written in PyTorch, with the weights of a network of kerascnn."""

import torch
from torch.nn import functional as F


def _weights(network, name):
    return [torch.from_numpy(w.numpy()) for w in network.get_layer(name).weights]


def _conv(network, name, x, **options):
    kernel, *bias = _weights(network, name)
    return F.conv2d(x, kernel.permute(3, 2, 0, 1), *bias, **options)


def _bn(network, name, x):
    gamma, beta, mean, variance = _weights(network, name)
    return F.batch_norm(x, mean, variance, gamma, beta, eps=1e-5)


def _dense(network, name, x):
    kernel, bias = _weights(network, name)
    return x @ kernel + bias


def resnet18(network, x):
    x = _conv(network, "conv1_conv", x.permute(0, 3, 1, 2), stride=2, padding=3)
    x = F.max_pool2d(F.relu(_bn(network, "conv1_bn", x)), 3, stride=2, padding=1)
    for stage in range(2, 6):
        for block in (1, 2):
            name, stride = f"conv{stage}_block{block}", 2 if stage > 2 and block == 1 else 1
            y = _conv(network, f"{name}_1_conv", x, stride=stride, padding=1)
            y = F.relu(_bn(network, f"{name}_1_bn", y))
            y = _bn(network, f"{name}_2_bn", _conv(network, f"{name}_2_conv", y, padding=1))
            if stride == 2:
                x = _conv(network, f"{name}_0_conv", x, stride=2)
                x = _bn(network, f"{name}_0_bn", x)
            x = F.relu(x + y)
    return _dense(network, "predictions", x.mean((2, 3)))


def _norm(network, name, x):
    return F.layer_norm(x, x.shape[-1:], *_weights(network, name), eps=1e-6)


def _attention(network, name, x):
    wq, bq, wk, bk, wv, bv, wo, bo = _weights(network, name)
    q, k, v = (
        torch.einsum("ntd,dhe->nhte", x, w) + b[:, None] for w, b in ((wq, bq), (wk, bk), (wv, bv))
    )
    y = F.scaled_dot_product_attention(q, k, v)
    return torch.einsum("nhte,hed->ntd", y, wo) + bo


def vitti16(network, x):
    x = _conv(network, "patches", x.permute(0, 3, 1, 2), stride=16).flatten(2).transpose(1, 2)
    token, positions = _weights(network, "positions")
    x = torch.cat([token.expand(len(x), -1, -1), x], 1) + positions
    for i in range(1, 13):
        name = f"block{i}"
        x = x + _attention(network, f"{name}_attention", _norm(network, f"{name}_1_norm", x))
        y = _dense(network, f"{name}_1_dense", _norm(network, f"{name}_2_norm", x))
        x = x + _dense(network, f"{name}_2_dense", F.gelu(y))
    return _dense(network, "predictions", _norm(network, "norm", x)[:, 0])
