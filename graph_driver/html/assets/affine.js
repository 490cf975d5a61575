// Exact integer programs from isl (graph_driver/html/affine.py), compiled to closures over an environment.

function compile(p) {
  if (typeof p === "number") return () => p;
  if (typeof p === "string") return (env) => env[p];
  const [op, ...rest] = p;
  const [a, b, c] = rest.map(compile);
  switch (op) {
    case "+": return (e) => a(e) + b(e);
    case "-": return (e) => a(e) - b(e);
    case "*": return (e) => a(e) * b(e);
    case "//": return (e) => Math.floor(a(e) / b(e));
    case "%": return (e) => { const d = b(e), r = a(e) % d; return r < 0 ? r + d : r; };
    case "min": return (e) => Math.min(a(e), b(e));
    case "max": return (e) => Math.max(a(e), b(e));
    case "==": return (e) => (a(e) === b(e) ? 1 : 0);
    case "<": return (e) => (a(e) < b(e) ? 1 : 0);
    case "<=": return (e) => (a(e) <= b(e) ? 1 : 0);
    case ">": return (e) => (a(e) > b(e) ? 1 : 0);
    case ">=": return (e) => (a(e) >= b(e) ? 1 : 0);
    case "and": return (e) => (a(e) && b(e) ? 1 : 0);
    case "or": return (e) => (a(e) || b(e) ? 1 : 0);
    case "not": return (e) => (a(e) ? 0 : 1);
    case "neg": return (e) => -a(e);
    case "?": return (e) => (a(e) ? b(e) : c(e));
    default: throw new Error(`unknown operator ${op}`);
  }
}
