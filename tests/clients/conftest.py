"""Rounds of these tests compile faster; see ``registry``."""

from registry import short_shuffle as short_shuffle
