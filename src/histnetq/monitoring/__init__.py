"""Mixes over time: chunks of rows by their times, alerts at a stated rate of false ones, and a page about both."""
