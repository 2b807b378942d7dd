"""Class mixes over time: chunks, alerts at a stated false alarm rate, and stored state."""
