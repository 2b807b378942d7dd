"""Every method, the contract it keeps, the registry and saving. Imports `uncertainty` and lower packages."""
