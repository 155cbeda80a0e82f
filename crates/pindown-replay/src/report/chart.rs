//! Line charts as inline SVG.

use std::fmt::Write;

use super::escape;
use crate::advise::bytes;

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 46.0;
/// The style sheet has so many colours; more lines share them.
const COLOURS: usize = 4;

/// One line.
pub(super) struct Series {
    pub(super) name: String,
    /// Bytes of room, value.
    pub(super) points: Vec<(f64, f64)>,
    pub(super) is_bound: bool,
}

/// Values by room.
pub(super) struct Chart<'a> {
    pub(super) title: &'a str,
    pub(super) unit: &'a str,
    /// The advised room.
    pub(super) mark: f64,
    pub(super) series: Vec<Series>,
}

impl Chart<'_> {
    pub(super) fn svg(&self) -> String {
        let all = || self.series.iter().flat_map(|s| &s.points).filter(|p| p.0.is_finite());
        let scale = Scale {
            x_max: all().map(|p| p.0).fold(1.0, f64::max),
            y_max: nice(all().map(|p| p.1).fold(1e-9, f64::max)),
        };
        let mut out = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escape(self.title)
        );
        self.axes(&mut out, &scale);
        self.marked(&mut out, &scale);
        for at in (0..self.series.len()).rev() {
            self.line(&mut out, &scale, at);
        }
        out.push_str("</svg>");
        self.legend(&mut out);
        out
    }

    fn axes(&self, out: &mut String, scale: &Scale) {
        for part in 0..=4 {
            let value = scale.y_max * f64::from(part) / 4.0;
            let y = scale.y(value);
            _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 5.0,
                short(value)
            );
        }
        for part in [0.25, 0.5, 0.75, 1.0] {
            let (room, anchor) = (scale.x_max * part, if part == 1.0 { "end" } else { "middle" });
            _ = write!(
                out,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                scale.x(room),
                HEIGHT - BOTTOM + 20.0,
                bytes(room as u64)
            );
        }
        _ = write!(
            out,
            "<text class=\"axis\" x=\"{LEFT}\" y=\"16\">{}</text>\
             <text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">room for registrations →</text>",
            escape(self.unit),
            WIDTH - RIGHT,
            HEIGHT - 6.0
        );
    }

    fn marked(&self, out: &mut String, scale: &Scale) {
        let x = scale.x(self.mark.min(scale.x_max));
        let anchor = if x > WIDTH * 0.75 { "end" } else { "start" };
        let beside = if anchor == "end" { x - 6.0 } else { x + 6.0 };
        _ = write!(
            out,
            "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>\
             <text class=\"marktext\" x=\"{beside:.1}\" y=\"16\" text-anchor=\"{anchor}\">advised</text>",
            HEIGHT - BOTTOM
        );
    }

    fn class(&self, at: usize) -> String {
        if self.series[at].is_bound { "best".to_owned() } else { format!("s{}", at % COLOURS) }
    }

    fn line(&self, out: &mut String, scale: &Scale, at: usize) {
        let (series, class) = (&self.series[at], self.class(at));
        let points = series.points.iter().map(|p| (scale.x(p.0.min(scale.x_max)), scale.y(p.1)));
        _ = write!(out, "<polyline class=\"{class}\" points=\"");
        points.clone().for_each(|(x, y)| _ = write!(out, "{x:.1},{y:.1} "));
        out.push_str("\"/>");
        for ((x, y), (room, value)) in points.zip(&series.points) {
            _ = write!(
                out,
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"><title>{}: {} {} with {}</title></circle>",
                escape(&series.name),
                short(*value),
                escape(self.unit),
                bytes(*room as u64)
            );
        }
    }

    fn legend(&self, out: &mut String) {
        out.push_str("<ul class=\"legend\">");
        for (at, series) in self.series.iter().enumerate() {
            _ = write!(
                out,
                "<li><svg viewBox=\"0 0 40 12\" aria-hidden=\"true\"><path class=\"{}\" d=\"M0 6H40\" stroke-width=\"4\"/></svg>{}</li>",
                self.class(at),
                escape(&series.name)
            );
        }
        out.push_str("</ul>");
    }
}

struct Scale {
    x_max: f64,
    y_max: f64,
}

impl Scale {
    fn x(&self, room: f64) -> f64 {
        LEFT + room / self.x_max * (WIDTH - LEFT - RIGHT)
    }
    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.y_max * (HEIGHT - TOP - BOTTOM)
    }
}

/// The next of 1, 2, 4, 8 times a power of ten: quarters of it are short.
fn nice(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 4.0, 8.0, 10.0].into_iter().map(|m| m * power).find(|n| *n >= value).unwrap_or(value)
}

fn short(value: f64) -> String {
    let digits = if value == 0.0 || value >= 10.0 {
        0
    } else if value >= 1.0 {
        1
    } else {
        (1.0 - value.log10().floor()) as usize
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_round_and_hold_the_data() {
        for value in [0.0003, 0.9, 1.0, 3.7, 11.2, 99.9, 812.0] {
            let top = nice(value);
            assert!(top >= value && top <= 2.5 * value, "{value}: {top}");
        }
        assert_eq!(
            (short(12.0), short(2.5), short(0.25), short(0.0)),
            ("12".into(), "2.5".into(), "0.25".into(), "0".into())
        );
    }
}
