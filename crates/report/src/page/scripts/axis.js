// Axes: positions of values from 0 to 1, and ticks.

const CHARACTER = 6.9; // mean width of a character of a tick label, in pixels

function isLogarithmic(scale) {
  return scale === "log2" || scale === "log10";
}

// Returns the range of an axis on its own scale, with a margin at both ends; null if a value has no position.
function axisRange(scale, values) {
  if (values.length === 0 || values.some((value) => !Number.isFinite(value))) return null;
  if (isLogarithmic(scale) && values.some((value) => value <= 0)) return null;
  const onScale = axisFunction(scale);
  let low = onScale(Math.min(...values));
  let high = onScale(Math.max(...values));
  if (scale === "category") return [low - 0.5, high + 0.5];
  // Linear axes of values start at zero.
  if (scale === "linear" && low > 0) low = 0;
  const margin = high > low ? (high - low) * 0.04 : 0.5;
  return [scale === "linear" && low === 0 ? 0 : low - margin, high + margin];
}

function axisFunction(scale) {
  if (scale === "log2") return Math.log2;
  if (scale === "log10") return Math.log10;
  return (value) => value;
}

// Returns the published values over which an axis extends: the nearest first, as long as our own values keep half of it,
// or of a logarithmic one that spans a factor of 10. The others are drawn at its ends.
function readable(scale, own, published) {
  const onScale = axisFunction(scale);
  const span = { log2: Math.log2(10), log10: 1 }[scale] ?? 0;
  const ends = own.map(onScale).filter(Number.isFinite);
  if (!isLogarithmic(scale)) ends.push(0);
  if (ends.length === 0) return published.filter((value) => Number.isFinite(onScale(value)));
  let [low, high] = [Math.min(...ends), Math.max(...ends)];
  const limit = 2 * Math.max(high - low, span);
  const distance = (value) => Math.max(low - onScale(value), onScale(value) - high, 0);
  const nearest = published
    .filter((value) => Number.isFinite(onScale(value)))
    .map((value) => [distance(value), value])
    .sort(([a], [b]) => a - b);
  const taken = [];
  for (const [, value] of nearest) {
    const [from, to] = [Math.min(low, onScale(value)), Math.max(high, onScale(value))];
    if (limit > 0 && to - from > limit) continue;
    [low, high] = [from, to];
    taken.push(value);
  }
  return taken;
}

// Returns an axis over values; `levels` are the labels of categories, `isBytes` states whether numbers are lengths.
function makeAxis(scale, values, { levels = [], isBytes = false } = {}) {
  const range = axisRange(scale, values);
  if (range === null) return null;
  const onScale = axisFunction(scale);
  const [low, high] = range;
  const position = (value) => (onScale(value) - low) / (high - low);
  const label = isBytes ? bytes : (value) => significant(value);
  const ticks = (length, isHorizontal) => {
    if (scale === "category") return levels.map((name, index) => ({ at: position(index), label: name }));
    if (scale === "linear") return evenTicks(range, position, label, length / (isHorizontal ? 80 : 45));
    if (scale === "log2") return powersOfTwo(range, position, label, length);
    return powersOfTen(range, position, label, length, isHorizontal);
  };
  return { scale, position, ticks };
}

function evenTicks([low, high], position, label, wanted) {
  const least = (high - low) / Math.max(wanted, 2);
  const power = 10 ** Math.floor(Math.log10(least));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= least * 0.999);
  const ticks = [];
  for (let index = Math.ceil(low / step); index * step <= high; index += 1) {
    ticks.push({ at: position(index * step), label: label(index * step) });
  }
  return ticks;
}

// Labels every power of two, or every second, fourth, ..., so that labels do not overlap.
function powersOfTwo([low, high], position, label, length) {
  const powers = [];
  for (let power = Math.ceil(low); power <= Math.floor(high); power += 1) powers.push(power);
  const widest = Math.max(0, ...powers.map((power) => label(2 ** power).length * CHARACTER));
  const step = [1, 2, 4, 8, 16].find((one) => (one * length) / (high - low) > widest * 1.3) ?? 32;
  const isLabelled = (power) => ((power % step) + step) % step === 0;
  return powers.map((power) => ({
    at: position(2 ** power),
    label: isLabelled(power) ? label(2 ** power) : null,
  }));
}

// Labels the ticks that are far enough from other labels, as a share of the axis.
function labelAll(ticks, label, distance) {
  for (const tick of ticks) {
    const isFree = ticks.every((other) => other.label === null || Math.abs(other.at - tick.at) >= distance);
    if (tick.label === null && isFree) tick.label = label(tick.at);
  }
}

function powersOfTen([low, high], position, label, length, isHorizontal) {
  const decade = length / (high - low);
  const needed = isHorizontal ? 5 * CHARACTER : 16;
  const ticks = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); power += 1) {
    for (let digit = 1; digit < 10; digit += 1) {
      const value = digit * 10 ** power;
      const at = position(value);
      if (at < 0 || at > 1) continue;
      const isLabelled =
        digit === 1
          ? decade > needed * 0.6 || power % 2 === 0
          : (digit === 2 || digit === 5) && decade * 0.3 > needed;
      ticks.push({ at, label: isLabelled ? label(value) : null });
    }
  }
  if (ticks.filter((tick) => tick.label !== null).length < 3)
    labelAll(ticks, (at) => label(10 ** (low + at * (high - low))), needed / length);
  return ticks;
}
