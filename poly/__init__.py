"""The polyhedral core: dtypes, expressions, domains, access relations, Scop, dependences, legality."""

from polyc.poly.installed import spare_islpy

spare_islpy()
