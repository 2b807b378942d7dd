// The result of a job by columns: bags, or periods of time.

// Values of trust and verdict that are not warnings.
const GOOD = ["ok", "unchecked", "unchanged", "no reference"];

function columns(rows, classes, more) {
  const column = (name) => rows.map((row) => row[name]);
  const known = rows.length > 0 && rows.every((row) => row.lower !== null);
  return {
    classes: classes.map(String), n: column("n"), estimate: column("estimate"),
    lower: known ? column("lower") : null, upper: known ? column("upper") : null, ...more(column),
  };
}

export const bagsOf = (result) => columns(result.bags, result.classes, (column) => ({
  what: "bag", head: result.keys.join(" / ") || "bag", says: "trust", timed: false,
  names: column("name").map((parts) => parts.join(" / ")), words: column("trust"),
}));

export const periodsOf = (chunks, classes) => columns(chunks, classes, (column) => ({
  what: "period", head: "period", says: "verdict", timed: true, names: column("chunk"), words: column("verdict"),
  start: column("start"), end: column("end"), held: column("period").map((period) => period === "reference"),
  ...(chunks.every((chunk) => chunk.reference !== null) ? {
    reference: column("reference"), low: column("threshold_lower"), high: column("threshold_upper"),
  } : { reference: null, low: null, high: null }),
  alert: column("alert"),
}));

/** Return the monitored segments: the name of each, its periods, and the number of periods with an alert. */
export function segmentsOf(chunks) {
  const found = new Map();
  for (const chunk of chunks) {
    const name = chunk.segment.join(" / ");
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(chunk);
  }
  return [...found].map(([name, own]) => ({ name, chunks: own, moved: own.filter((c) => c.alert.some(Boolean)).length }));
}

/** Return whether a bag or a period has a warning. */
export const isDoubted = (found, i) => !GOOD.includes(found.words[i]);

export const nDoubted = (found) => found.words.filter((word) => !GOOD.includes(word)).length;
