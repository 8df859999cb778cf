"""Handwritten digits by form: the small real federation that ships with the library.

E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998;
the test part, as scikit-learn distributes it. Its rows follow the 14 handwriting forms they were taken from,
each holding the same sequence of 130 digits (few are missing), so the forms can be told apart. The forms are
the natural clients: their label mixes are almost equal, their handwriting is not. The authors speak of 13
writers, so two of the forms may be one hand.
"""

from importlib import resources

import numpy as np

from fedjax_geo.data._prepare import scale
from fedjax_geo.data._source import Source


def digits_forms() -> Source:
    """1,797 images of 8x8 pixels (values 0 to 16), 10 digits, 14 handwriting forms as clients."""
    with (
        resources.files("fedjax_geo.data").joinpath("digits_forms.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as stored,
    ):
        images, labels, forms = (stored[name] for name in ("images", "labels", "forms"))
    return Source(
        images=images[..., None],
        labels=labels.astype(np.int32),
        class_names=tuple("0123456789"),
        prepare=scale(16),
        num_train=len(labels),
        provenance="digits_forms: UCI optdigits test part (Alpaydin and Kaynak, 1998), embedded",
        licence="CC BY 4.0, from a copy under BSD-3-Clause",
        client_ids=forms.astype(np.int32),
        client_names=tuple(f"form {form}" for form in range(14)),
    )
