"""What stands in HDF5 files, for answers that are kept as sums (kept_sums.py)."""
import h5py
import numpy as np

UNSTEADY = ("created", "source", "command", "made_by", "version", "spillway_version", "import_files")


def stored(path):
    """Name and value of every array, and of every attribute as ARRAY@NAME."""
    found = []

    def visit(name, item):
        found.extend((f"{name}@{key}", value) for key, value in item.attrs.items())
        if isinstance(item, h5py.Dataset):
            found.append((name, item[()]))

    with h5py.File(path, "r") as f:
        visit("", f)
        f.visititems(visit)
    return found


def array_sum(flat):
    """Of numbers, each with a weight by its place."""
    return float(np.sum((1 + np.arange(flat.size) * 2654435761 % 2**32 / 2**32) * np.arcsinh(flat)))
