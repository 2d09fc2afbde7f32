"""Laplace noise's twin under zCDP."""
