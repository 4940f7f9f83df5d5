"""Method → the papers it implements, as keys of references.bib; ours have none yet."""

from __future__ import annotations

PAPERS: dict[str, tuple[str, ...]] = {
    "pfed-mul": ("lyu2025task",),
    "pfed-hier": (),
    "pfed-st": ("lyu2025task",),
    "local": (),
    "pooled": (),
    "fedavg": ("mcmahan2017communication",),
    "fedavg-ft": ("mcmahan2017communication", "yu2020salvaging"),
    "fedper": ("arivazhagan2019federated",),
    "scaffold": ("karimireddy2020scaffold",),
    "pfedme": ("dinh2020personalized",),
    "fedpac": ("xu2023personalized",),
    "pfedgp": ("achituve2021personalized",),
    "pfedvem": ("zhu2023confidence",),
    "ditto": ("li2021ditto",),
    "fedbabu": ("oh2022fedbabu",),
    "fedrod": ("chen2022bridging",),
    "pfedfda": ("mclaughlin2024personalized",),
    "fed3r": ("fani2024accelerating",),
    "sklearn-hgb-pooled": ("ke2017lightgbm",),
    "sklearn-linear-pooled": ("pedregosa2011scikit",),
    "catboost-pooled": ("prokhorenkova2018catboost",),
    "mixed-effects": ("laird1982random",),
    "sklearn-rf-local": ("breiman2001random",),
    "sklearn-gp-local": ("rasmussen2006gaussian",),
    "pfed-mul-published": ("lyu2025task",),
}
