"""Output shapes of operators as formulas: one rule for each kind of operator.

onnx's own inference works on numbers; the rules here follow the same definitions on `Size`s. Each
answer is compared with onnx's at the representative sizes (`polyc.graph_driver.inference.symbolic`), so a wrong
rule is found on the first model that uses it.
"""

from polyc.graph_driver.inference.shape_rules import elements, movement, reductions, windows
from polyc.graph_driver.inference.shape_rules.call import RULES, Call, NoRule, Rule, known_values

__all__ = ["RULES", "Call", "NoRule", "Rule", "elements", "known_values", "movement", "reductions", "windows"]
