"""Fumehood in the shape that other frameworks expect: one package for each, which alone imports that framework."""
