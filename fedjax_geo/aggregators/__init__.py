"""What the server makes of the stacked updates."""

from fedjax_geo.aggregators._craft import craft, no_reference, previous_direction
from fedjax_geo.aggregators._solvers import ridge, spectral
from fedjax_geo.aggregators._weighted_mean import weighted_mean

__all__ = ["craft", "no_reference", "previous_direction", "ridge", "spectral", "weighted_mean"]
