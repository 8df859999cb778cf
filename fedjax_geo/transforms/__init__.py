"""Server links beside the aggregators: what happens to stacked updates before, and to the direction after.

Ordinary optax links work after an aggregator unchanged, because updates are pseudo-gradients.
"""

from fedjax_geo.transforms._accountant import epsilon, epsilon_fixed_cohort
from fedjax_geo.transforms._adaptive_clip import ClipState, adaptive_clip
from fedjax_geo.transforms._drop_nonfinite import DropState, drop_nonfinite
from fedjax_geo.transforms._error_feedback import FeedbackState, error_feedback
from fedjax_geo.transforms._fedopt import (
    FedOptState,
    SecondMoment,
    adagrad_moment,
    adam_moment,
    scale_by_fedopt,
    yogi_moment,
)
from fedjax_geo.transforms._match_lengths import match_lengths
from fedjax_geo.transforms._per_client import per_client
from fedjax_geo.transforms._private_mean import private_adaptive_mean, private_mean
from fedjax_geo.transforms._quantize import quantize, quantize_bytes
from fedjax_geo.transforms._top_k import top_k, top_k_bytes

__all__ = [
    "ClipState",
    "DropState",
    "FedOptState",
    "FeedbackState",
    "SecondMoment",
    "adagrad_moment",
    "adam_moment",
    "adaptive_clip",
    "drop_nonfinite",
    "epsilon",
    "epsilon_fixed_cohort",
    "error_feedback",
    "match_lengths",
    "per_client",
    "private_adaptive_mean",
    "private_mean",
    "quantize",
    "quantize_bytes",
    "scale_by_fedopt",
    "top_k",
    "top_k_bytes",
    "yogi_moment",
]
