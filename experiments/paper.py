"""The paper's results for comparison: mean AE and RAE of each method."""

from __future__ import annotations

__all__ = ["ABLATION", "BINS", "RESULTS"]

Numbers = dict[str, tuple[float, float]]

RESULTS: dict[str, Numbers] = {
    "LeQua-T1A": {
        "CC": (0.0916, 1.0840), "PCC": (0.1166, 1.3940), "ACC": (0.0372, 0.1702), "PACC": (0.0298, 0.1522),
        "HDy": (0.0281, 0.1451), "QuaNet": (0.0342, 0.3176), "EMQ-BCTS": (0.0269, 0.1183),
        "EMQ-NoCalib": (0.0236, 0.1088), "DeepSets-avg": (0.0278, 0.1269), "DeepSets-median": (0.0292, 0.1389),
        "DeepSets-max": (0.0499, 0.2183), "SetTransformer": (0.0225, 0.1096), "HistNetQ-hard": (0.0224, 0.1071),
        "HistNetQ-soft": (0.0228, 0.1083), "HistNetQ-rbf": (0.0226, 0.1125), "HistNetQ-sigmoid": (0.0220, 0.1073),
    },
    "LeQua-T1B": {
        "CC": (0.0141, 1.8936), "PCC": (0.0171, 2.2646), "ACC": (0.0184, 1.4213), "PACC": (0.0158, 1.3054),
        "EMQ-BCTS": (0.0117, 0.9372), "EMQ-NoCalib": (0.0118, 0.8780), "DeepSets-avg": (0.0128, 0.9954),
        "DeepSets-median": (0.0143, 0.8443), "DeepSets-max": (0.0277, 1.4646), "SetTransformer": (0.0385, 1.6748),
        "HistNetQ-hard": (0.0107, 0.7574), "HistNetQ-soft": (0.0185, 0.9481), "HistNetQ-rbf": (0.0210, 1.0512),
        "HistNetQ-sigmoid": (0.0186, 0.9987),
    },
    "Fashion-MNIST": {
        "CC": (0.0163, 0.5828), "PCC": (0.0204, 0.7817), "ACC": (0.0082, 0.2226), "PACC": (0.0067, 0.1831),
        "EMQ-BCTS": (0.0065, 0.1510), "EMQ-NoCalib": (0.0132, 0.2549), "DeepSets-avg": (0.0083, 0.3283),
        "DeepSets-median": (0.0094, 0.7195), "DeepSets-max": (0.0219, 0.3520), "SetTransformer": (0.0104, 2.2017),
        "HistNetQ-hard": (0.0060, 0.1592), "HistNetQ-soft": (0.0084, 0.1662), "HistNetQ-rbf": (0.0069, 0.1360),
        "HistNetQ-sigmoid": (0.0076, 0.6903),
    },
}  # fmt: skip
BINS: Numbers = {"8": (0.0297, 1.2878), "16": (0.0212, 1.0572), "32": (0.0121, 0.7851), "64": (0.0107, 0.7574)}
# Without the Bag Mixer.
ABLATION: dict[str, Numbers] = {
    "LeQua-T1A": {
        "DeepSets-avg": (0.0326, 0.1469), "DeepSets-median": (0.0416, 0.1810), "DeepSets-max": (0.0570, 0.2287),
        "SetTransformer": (0.0368, 0.1553), "HistNetQ-hard": (0.0279, 0.1265),
    },
    "LeQua-T1B": {
        "DeepSets-avg": (0.0449, 1.5029), "DeepSets-median": (0.0215, 1.0991), "DeepSets-max": (0.0200, 1.5740),
        "SetTransformer": (0.0311, 4.2416), "HistNetQ-hard": (0.0445, 1.5108),
    },
}  # fmt: skip
