// Numbers as texts.

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

// Formats a number with at most `digits` significant digits and without trailing zeros.
function significant(value, digits = 3) {
  if (!Number.isFinite(value)) return "—";
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-4 || size >= 1e6)) {
    return value.toExponential(digits - 1).replace(/\.?0*e\+?/, "·10^");
  }
  const places = value === 0 ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  const text = value.toFixed(Math.min(places, 8));
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

// Formats a number of bytes in the largest unit of which it is a multiple.
function bytes(value) {
  let unit = 0;
  while (unit + 1 < BYTE_UNITS.length && value >= 1024 && value % 1024 === 0) {
    value /= 1024;
    unit += 1;
  }
  return unit === 0 && value >= 1024
    ? `${significant(value / 1024)} KiB`
    : `${significant(value)} ${BYTE_UNITS[unit]}`;
}

// Formats both ends of an interval; an open end is null.
function ends(low, high, number) {
  if (low === null && high === null) return "unknown";
  if (high === null) return `at least ${number(low)}`;
  if (low === null) return `at most ${number(high)}`;
  return `${number(low)} to ${number(high)}`;
}

function count(number, thing) {
  return `${number} ${thing}${number === 1 ? "" : "s"}`;
}
