// The iteration space for given sizes: instances, their times, and the dependences between them.

class Space {
  constructor(data) {
    this.data = data;
    this.context = compile(data.context);
    this.statements = data.statements.map((s) => ({
      ...s,
      domain: compile(s.domain),
      low: s.low.map(compile),
      high: s.high.map(compile),
      times: s.times.map((t) => ({ when: compile(t.when), steps: t.steps.map(([loop, v]) => [loop, compile(v)]) })),
    }));
    this.byName = new Map(this.statements.map((s) => [s.name, s]));
    this.dependences = data.dependences.map((d) => ({
      ...d,
      parts: d.parts.map((p) => ({ by: p.by, when: compile(p.when), value: (p.value || []).map(compile) })),
    }));
  }

  // Bounds of each iterator of a statement for these sizes.
  bounds(statement, sizes) {
    return statement.low.map((low, k) => [low(sizes), statement.high[k](sizes)]);
  }

  // Instances of some statements. `fixed`: iterator -> value; `window(iterator)`: most values of a free one;
  // `limit`: most instances. Gives {instances, clipped: iterators that were cut, full: limit reached}.
  instances(names, sizes, fixed, window, limit) {
    const out = [], clipped = new Set();
    let full = false;
    for (const name of names) {
      const s = this.byName.get(name), env = { ...sizes };
      const bounds = this.bounds(s, sizes).map(([lo, hi], k) => {
        const iter = s.iters[k];
        if (iter in fixed) return [fixed[iter], fixed[iter]];
        const most = window(iter);
        if (hi - lo + 1 <= most) return [lo, hi];
        clipped.add(`${most} values of ${iter} (${name})`);
        return [lo, lo + most - 1];
      });
      const visit = (k, at) => {
        if (full) return;
        if (k === bounds.length) {
          if (!s.domain(env)) return;
          if (out.length >= limit) { full = true; return; }
          out.push(this.instance(s, [...at], env));
          return;
        }
        for (let v = bounds[k][0]; v <= bounds[k][1]; v += 1) {
          env[`$${k}`] = v;
          at[k] = v;
          visit(k + 1, at);
        }
      };
      visit(0, []);
    }
    return { instances: out, clipped: [...clipped], full };
  }

  // How many values of iterator `k` one block of the loops `outer` has; null where that is more than `most`, or nothing.
  block(s, k, outer, sizes, most) {
    const env = { ...sizes }, at = s.low.map((low) => low(sizes));
    const blocks = () => {
      at.forEach((v, j) => { env[`$${j}`] = v; });
      const { loops } = this.instance(s, at, env);
      return outer.map((l) => loops[l]);
    };
    const first = blocks(), start = at[k];
    for (let d = 1; d <= most; d += 1) {
      at[k] = start + d;
      if (blocks().some((v, j) => v !== undefined && first[j] !== undefined && v !== first[j])) return d;
    }
    return null;
  }

  instance(s, at, env) {
    const branch = s.times.find((t) => t.when(env));
    const steps = branch ? branch.steps.map(([loop, v]) => [loop, v(env)]) : [];
    const loops = {};
    for (const [loop, v] of steps) if (loop) loops[loop] = v;
    return { id: `${s.name}(${at.join(",")})`, statement: s, at, steps, loops };
  }

  // Execution ranks 0, 1, ...; loops in `together` (parallel, vector) take one step for all their values.
  rank(instances, together) {
    const key = new Map(instances.map((x) => [x, x.steps.map(([loop, v]) => (together.has(loop) ? 0 : v))]));
    const compare = (x, y) => {
      const a = key.get(x), b = key.get(y);
      for (let k = 0; k < Math.max(a.length, b.length); k += 1) {
        const d = (a[k] || 0) - (b[k] || 0);
        if (d) return d;
      }
      return 0;
    };
    const sorted = [...instances].sort(compare);
    let rank = -1;
    sorted.forEach((x, k) => {
      if (k === 0 || compare(sorted[k - 1], x) !== 0) rank += 1;
      x.rank = rank;
    });
    return rank + 1;
  }

  // Pairs [source, sink, dependence] with both ends among `instances`; `leaving` counts the others.
  // One pair counts once for each `label` of its dependences.
  edges(instances, sizes, wanted, limit, label) {
    const byId = new Map(instances.map((x) => [x.id, x])), seen = new Set(), out = [];
    let leaving = 0, total = 0;
    for (const d of this.dependences.filter(wanted)) {
      for (const part of d.parts) {
        const pairs = part.by === "pair" ? this.pairs(d, part, instances, sizes) : this.functional(d, part, instances, sizes, byId);
        for (const [source, sink] of pairs) {
          if (!source || !sink) { leaving += 1; continue; }
          const id = `${label(d)}${d.array}${source.id}${sink.id}`;
          if (seen.has(id)) continue;
          seen.add(id);
          total += 1;
          if (out.length < limit) out.push([source, sink, d]);
        }
      }
    }
    return { edges: out, leaving, total };
  }
  functional(d, part, instances, sizes, byId) {
    const from = part.by === "sink" ? d.to : d.from, to = part.by === "sink" ? d.from : d.to, out = [];
    for (const x of instances) {
      if (x.statement.name !== from) continue;
      const env = this.environment(sizes, x.at);
      if (!part.when(env)) continue;
      const other = byId.get(`${to}(${part.value.map((v) => v(env)).join(",")})`);
      out.push(part.by === "sink" ? [other, x] : [x, other]);
    }
    return out;
  }
  pairs(d, part, instances, sizes) {
    const out = [];
    for (const x of instances.filter((i) => i.statement.name === d.from)) {
      for (const y of instances.filter((i) => i.statement.name === d.to)) {
        if (part.when(this.environment(sizes, [...x.at, ...y.at]))) out.push([x, y]);
      }
    }
    return out;
  }
  environment(sizes, at) {
    const env = { ...sizes };
    at.forEach((v, k) => { env[`$${k}`] = v; });
    return env;
  }
}

// The convex hull of points [x, y] (monotone chain, Andrew 1979).
function hull(points) {
  const p = [...points].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  if (p.length < 3) return p;
  const half = (list) => {
    const out = [];
    for (const q of list) {
      while (out.length > 1) {
        const [a, b] = out.slice(-2);
        if ((b[0] - a[0]) * (q[1] - a[1]) - (b[1] - a[1]) * (q[0] - a[0]) > 0) break;
        out.pop();
      }
      out.push(q);
    }
    return out.slice(0, -1);
  };
  return [...half(p), ...half(p.reverse())];
}
