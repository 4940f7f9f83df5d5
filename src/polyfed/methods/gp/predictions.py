"""Predictions of many Gaussian-process clients: small ones in batches, large ones one by one, from where training ended."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from polyfed.gp import ExactModel, Knowledge, LatentPrediction, Rows, infer
from polyfed.gp.batch import buckets
from polyfed.gp.rows import places as rows_in_stack
from polyfed.methods.gp.clients import goes_alone
from polyfed.methods.gp.model import PREDICTION_STEPS, PREDICTION_TOLERANCE, PosteriorPredictor, prepared_rows
from polyfed.modelling.rows import read_out
from polyfed.predictions import Predictions


def answers(predictors: Sequence[PosteriorPredictor], asked: Sequence[np.ndarray]) -> list[Predictions]:
    """What each says of its own inputs. They have one model, and receive shared functions all or none."""
    rows = [prepared_rows(one.data, one.model.likelihoods) for one in predictors]
    together = [i for i, (one, mine) in enumerate(zip(predictors, rows, strict=True)) if _may_share(one, mine)]
    found: dict[int, Predictions] = {}
    for group in buckets([len(rows[i]) for i in together]):
        places = [together[i] for i in group]
        some = [predictors[i] for i in places]
        found |= zip(places, _of_batch(some, [rows[i] for i in places], [asked[i] for i in places]), strict=True)
    return [found[i] if i in found else one(asked[i]) for i, one in enumerate(predictors)]


def _may_share(one: PosteriorPredictor, rows: Rows) -> bool:
    return len(rows) > 0 and one.prior.sees_inputs and not one.prior.has_mean and not goes_alone(one.model, len(rows))


def _of_batch(
    predictors: Sequence[PosteriorPredictor], rows: Sequence[Rows], asked: Sequence[np.ndarray]
) -> list[Predictions]:
    model, known = predictors[0].model, [one.knowledge for one in predictors if one.knowledge is not None]
    knowledge = Knowledge.stack(known) if known else None
    values = [one.prior.parameters for one in predictors]
    with torch.no_grad():
        prior = model.prior.with_values({name: torch.stack([mine[name] for mine in values]) for name in values[0]})
        gp = ExactModel(prior, Rows.stack(rows), knowledge=knowledge)
        first = gp.rows.as_f(gp.prior_marginals())
        for c, (one, spot) in enumerate(zip(predictors, rows_in_stack(rows), strict=True)):
            if one.start is not None:
                first[0][c, spot], first[1][c, spot] = one.start
        start = gp.rows.as_f(first, back=True)
        q = infer(gp, start=start, tolerance=PREDICTION_TOLERANCE, max_steps=PREDICTION_STEPS).q
        x = [torch.from_numpy(own) for own in asked]
        mean, cov = gp.latents_at(getattr(q, "whole", q), torch.nn.utils.rnn.pad_sequence(x, batch_first=True))
    said = []
    for c, one in enumerate(predictors):
        n = len(x[c])
        latents = LatentPrediction(mean[c, :n], cov[c, :n], one.prior.mixing())
        said.append(read_out(latents, one.prior, model.likelihoods, one.data.codecs))
    return said
