/* calls.h - operations with many operands, called with a list */
#ifndef CALLS_H
#define CALLS_H

#include "ops/ops.h"

static inline alibi_status attention_forward_of(struct device *dev, struct tensor y,
                                                struct tensor lse, struct attention_args a)
{
    a.y = y;
    a.lse = lse;
    return dev->ops->attention_forward(dev, &a);
}

static inline alibi_status attention_backward_of(struct device *dev, struct tensor dq,
                                                 struct tensor dk, struct tensor dv,
                                                 struct tensor dbias, struct tensor dy,
                                                 struct tensor y, struct tensor lse,
                                                 struct attention_args a)
{
    a.dq = dq;
    a.dk = dk;
    a.dv = dv;
    a.dbias = dbias;
    a.dy = dy;
    a.y = y;
    a.lse = lse;
    return dev->ops->attention_backward(dev, &a);
}

static inline alibi_status adamw_of(struct device *dev, struct tensor w, struct tensor copy,
                                    struct tensor m, struct tensor v, struct tensor gradient,
                                    struct adamw_args a)
{
    a.w = w;
    a.copy = copy;
    a.m = m;
    a.v = v;
    a.gradient = gradient;
    return dev->ops->adamw(dev, &a);
}

static inline alibi_status nesterov_of(struct device *dev, struct tensor w, struct tensor copy,
                                       struct tensor u, struct tensor gradient,
                                       struct nesterov_args a)
{
    a.w = w;
    a.copy = copy;
    a.u = u;
    a.gradient = gradient;
    return dev->ops->nesterov(dev, &a);
}

#endif
