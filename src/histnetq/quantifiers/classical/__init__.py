"""Classical methods: functions from posteriors or features to prevalences, and thin estimators around them."""
