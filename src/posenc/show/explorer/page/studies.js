// Reads the results of a study, task by task.

/**
 * @typedef {{encoding: string, lengths: number[], mean: number[], low: number[], high: number[]}} Curve over all seeds
 * @typedef {{task: string, bits: boolean, seeds: number, curves: Curve[]}} Study
 */

/** @param {any} study as `posenc results --json` prints it @returns {Study[]} one for each task */
export function studiesOf(study) {
  /** @type {Map<string, Study>} */
  const tasks = new Map();
  for (const row of study?.rows ?? []) {
    const lengths = Object.keys(row.curve ?? {}).map(Number).sort((a, b) => a - b);
    if (!lengths.length) continue;
    /** @type {Study} */
    const task = tasks.get(row.task) ?? { task: row.task, bits: row.bits, seeds: 0, curves: [] };
    tasks.set(row.task, task);
    /** @param {(seeds: number[]) => number} f */
    const each = (f) => lengths.map((length) => f(row.curve[length]));
    task.seeds = Math.max(task.seeds, ...each((seeds) => seeds.length));
    task.curves.push({
      encoding: row.encoding, lengths, mean: each((seeds) => seeds.reduce((a, b) => a + b, 0) / seeds.length),
      low: each((seeds) => Math.min(...seeds)), high: each((seeds) => Math.max(...seeds)),
    });
  }
  return [...tasks.values()];
}
