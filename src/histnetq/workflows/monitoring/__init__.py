"""Class mixes over time: chunks, alerts at a stated false alarm rate, and a state that is kept between runs."""
