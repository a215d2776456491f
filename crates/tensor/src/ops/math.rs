//! Exponentials and what is made of them, one float at a time.
//!
//! The one idea: each function is a fixed sequence of IEEE operations without branches, so a loop
//! over it turns into vector code of any width *with the same bits*. The kernels inline them into
//! functions compiled for each instruction set; there is nothing to keep in agreement by hand.
//! `mul_add` is one rounding everywhere: an instruction where there is one, a library call in
//! plain scalar builds.
//!
//! Not here: loops. Source of the polynomials: Cephes, `expf.c` and `tanhf.c`,
//! <https://www.netlib.org/cephes/>.

/// Lanes that every reduction in this crate's float kernels is spread over, whatever the machine's
/// vectors hold: one 512-bit register, two of 256 bits.
pub(crate) const LANES: usize = 16;

/// Above it [`exp`] stays at `exp(EXP_ARGUMENT_MAX)`, about 2.4e38: finite, so that a quotient of
/// it is never NaN.
pub(crate) const EXP_ARGUMENT_MAX: f32 = 88.37;

/// Below it [`exp`] is 0: the result would be subnormal.
pub(crate) const EXP_ARGUMENT_MIN: f32 = -87.336;

/// The larger; the second if either is NaN. (`f32::max` has another rule and costs more.)
#[inline(always)]
pub(crate) fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// `e^x`, to a relative error of 1.2e-7 (one unit in the last place) between the two limits above.
/// `exp(0)` is 1, `exp(-inf)` is 0.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2`; then `e^x = 2^n e^r` with a polynomial for `e^r`.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    /// ln 2 in two parts: `n * LN2_HIGH` is exact for every n that occurs.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    /// Adding it rounds to an integer and leaves that integer in the lowest bits.
    const ROUNDER: f32 = 12_582_912.0;

    let clamped = if EXP_ARGUMENT_MAX < x {
        EXP_ARGUMENT_MAX
    } else {
        x
    };
    let rounded = clamped.mul_add(std::f32::consts::LOG2_E, ROUNDER);
    let n = rounded - ROUNDER;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, clamped));
    let mut p = 1.987_569_1e-4_f32;
    p = p.mul_add(r, 1.398_2e-3);
    p = p.mul_add(r, 8.333_452e-3);
    p = p.mul_add(r, 4.166_579_6e-2);
    p = p.mul_add(r, 1.666_666_5e-1);
    p = p.mul_add(r, 5.0e-1);
    let power = p.mul_add(r * r, r) + 1.0;
    // 2^n: n moves to the exponent's place, on top of the exponent of 1.0.
    let scale = f32::from_bits((rounded.to_bits() << 23).wrapping_add(1.0_f32.to_bits()));
    if x < EXP_ARGUMENT_MIN {
        0.0
    } else {
        power * scale
    }
}

/// Hyperbolic tangent, to a relative error of 2.4e-7.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let magnitude = x.abs();
    // Near 0 the quotient below would cancel.
    let square = x * x;
    let mut p = -5.704_988_7e-3_f32;
    p = p.mul_add(square, 2.063_908_8e-2);
    p = p.mul_add(square, -5.373_971_5e-2);
    p = p.mul_add(square, 1.333_144_3e-1);
    p = p.mul_add(square, -3.333_328e-1);
    let small = (p * square).mul_add(magnitude, magnitude);
    let large = 1.0 - 2.0 / (exp(2.0 * magnitude) + 1.0);
    let result = if magnitude < 0.625 { small } else { large };
    result.copysign(x)
}

/// `cap * tanh(x / cap)`: nearly `x` where it is small, never beyond `cap`.
#[inline(always)]
pub(crate) fn softcap(x: f32, cap: f32) -> f32 {
    cap * tanh(x / cap)
}

/// `max(x, 0)`; 0 if `x` is NaN.
#[inline(always)]
pub(crate) fn relu(x: f32) -> f32 {
    larger(x, 0.0)
}

/// `x * sigmoid(x)`, to an error of 3e-7 of itself and 5e-39 of `x`: far below zero it does not vanish,
/// because [`exp`] has a largest value.
#[inline(always)]
pub(crate) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// GELU in its tanh form, `x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`, to an error of 4e-7
/// of `x`.
///
/// Written with the logistic function, `(1 + tanh(u)) / 2 = 1 / (1 + exp(-2u))`, which does not
/// cancel for negative `x`.
#[inline(always)]
pub(crate) fn gelu_tanh(x: f32) -> f32 {
    /// `-2 sqrt(2/pi)`.
    const FACTOR: f32 = -1.595_769;
    let cubic = (x * x * 0.044_715).mul_add(x, x);
    x / (1.0 + exp(FACTOR * cubic))
}

/// GELU as first defined, `x/2 * (1 + erf(x / sqrt(2)))`, to an error of 4e-7 of `x`.
///
/// Source: the tail of the error function is that of Abramowitz and Stegun, "Handbook of Mathematical Functions",
/// 7.1.26, to 1.5e-7.
#[inline(always)]
pub(crate) fn gelu_erf(x: f32) -> f32 {
    let magnitude = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / 0.327_591_1_f32.mul_add(magnitude, 1.0);
    let mut p = 1.061_405_4_f32;
    p = p.mul_add(t, -1.453_152_1);
    p = p.mul_add(t, 1.421_413_8);
    p = p.mul_add(t, -0.284_496_74);
    p = p.mul_add(t, 0.254_829_6);
    // What a normal variable exceeds `|x|` with.
    let tail = 0.5 * p * t * exp(-magnitude * magnitude);
    x * if x < 0.0 { tail } else { 1.0 - tail }
}

/// The sum of all lanes, as a balanced tree.
#[inline(always)]
pub(crate) fn sum_lanes(lanes: [f32; LANES]) -> f32 {
    let mut sums = lanes;
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            sums[lane] += sums[lane + half];
        }
        half /= 2;
    }
    sums[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every float with some step in `range`, as (value, exact reference).
    fn sweep(from: f32, to: f32, check: impl Fn(f32)) {
        let num_points = 400_000;
        for idx in 0..=num_points {
            check(from + (to - from) * (idx as f32 / num_points as f32));
        }
    }

    fn assert_close(name: &str, x: f32, got: f32, want: f64, error_max: f64) {
        let error = (f64::from(got) - want).abs();
        assert!(
            error <= error_max,
            "{name}({x}) = {got}, exactly {want}: off by {error:e}"
        );
    }

    #[test]
    fn exp_is_right_to_one_unit_in_the_last_place() {
        sweep(EXP_ARGUMENT_MIN, EXP_ARGUMENT_MAX, |x| {
            let want = f64::from(x).exp();
            assert_close("exp", x, exp(x), want, 1.2e-7 * want);
        });
        sweep(-1.0, 1.0, |x| {
            let want = f64::from(x).exp();
            assert_close("exp", x, exp(x), want, 1.2e-7 * want);
        });
    }

    #[test]
    fn exp_of_special_values() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-87.34), 0.0);
        assert_eq!(exp(f32::MIN), 0.0);
        assert!(exp(f32::INFINITY) > 2.3e38 && exp(f32::INFINITY).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn tanh_is_right_near_zero_and_far_away() {
        sweep(-12.0, 12.0, |x| {
            let want = f64::from(x).tanh();
            assert_close("tanh", x, tanh(x), want, 2.4e-7 * want.abs());
        });
        sweep(-1e-3, 1e-3, |x| {
            let want = f64::from(x).tanh();
            assert_close("tanh", x, tanh(x), want, 2.4e-7 * want.abs());
        });
        assert_eq!(tanh(0.0).to_bits(), 0.0_f32.to_bits());
        assert_eq!(tanh(-0.0).to_bits(), (-0.0_f32).to_bits());
        assert_eq!(tanh(f32::INFINITY), 1.0);
        assert_eq!(tanh(f32::MIN), -1.0);
        assert!(tanh(f32::NAN).is_nan());
    }

    #[test]
    fn silu_is_right_to_its_bound() {
        let check = |x: f32| {
            let wide = f64::from(x);
            let want = wide / (1.0 + (-wide).exp());
            let error_max = 3e-7 * want.abs() + 5e-39 * wide.abs();
            assert_close("silu", x, silu(x), want, error_max);
        };
        sweep(-100.0, 100.0, check);
        sweep(-1e30, 1e30, check);
    }

    #[test]
    fn gelu_is_right_to_its_bound() {
        sweep(-20.0, 20.0, |x| {
            let wide = f64::from(x);
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (wide + 0.044715 * wide.powi(3));
            let want = 0.5 * wide * (1.0 + inner.tanh());
            assert_close("gelu", x, gelu_tanh(x), want, 4e-7 * wide.abs());
        });
        assert_eq!(gelu_tanh(1e20), 1e20);
        assert!(gelu_tanh(-1e20).abs() < 1e-17);
    }

    #[test]
    fn gelu_with_the_error_function_is_right_to_its_bound() {
        // The series of erf; beyond 5.5 what it differs from 1 by is under the bound.
        let erf = |z: f64| {
            let term = |(sum, power): (f64, f64), n: u32| {
                (
                    sum + power / f64::from(2 * n + 1),
                    -power * z * z / f64::from(n + 1),
                )
            };
            (0..120).fold((0.0, z), term).0 * std::f64::consts::FRAC_2_SQRT_PI
        };
        sweep(-5.5, 5.5, |x| {
            let wide = f64::from(x);
            let want = 0.5 * wide * (1.0 + erf(wide / std::f64::consts::SQRT_2));
            assert_close("gelu_erf", x, gelu_erf(x), want, 4e-7 * wide.abs());
        });
        assert_eq!(gelu_erf(1e20), 1e20);
        assert_eq!(gelu_erf(-1e20).abs(), 0.0);
        assert_eq!(gelu_erf(20.0), 20.0);
        assert!(gelu_erf(f32::NAN).is_nan());
    }

    #[test]
    fn the_lanes_are_all_summed() {
        let lanes = std::array::from_fn(|lane| (1 << lane) as f32);
        assert_eq!(sum_lanes(lanes), 65535.0);
    }
}
