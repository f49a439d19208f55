//! Places on the earth as scores, and distances between them, with the arithmetic of Redis.
//!
//! A score has 52 bits: 26 of the latitude and 26 of the longitude, which take turns; a bit halves
//! the cell. So the members of a cell have scores in one range, and a search reads the cell of its
//! center and those around it. Each sum is done in the order in which Redis does it, so that scores
//! and distances are the same to the last bit.
//!
//! Not here: the commands, which are in `geo.rs`.

/// Bits of a latitude, and of a longitude.
const STEPS: u32 = 26;
const LATITUDE: f64 = 85.051_128_78;
const LONGITUDE: f64 = 180.0;
const EARTH_RADIUS: f64 = 6_372_797.560_856;
/// Half of the equator in Mercator's projection.
const MERCATOR: f64 = 20_037_726.37;
const RADIANS: f64 = std::f64::consts::PI / 180.0;
/// The bits of latitudes and those of longitudes.
const EVEN: u64 = 0x5555_5555_5555_5555;
const ODD: u64 = !EVEN;
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// A place, in degrees.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Place {
    pub(super) longitude: f64,
    pub(super) latitude: f64,
}

/// What a search looks for, in meters.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    Circle(f64),
    Box { width: f64, height: f64 },
}

/// A cell: the first `steps` bits of latitude and longitude.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    bits: u64,
    steps: u32,
}

/// The edges of a cell.
struct Edges {
    south: f64,
    north: f64,
    west: f64,
    east: f64,
}

/// What is left where groups of 1, 2, 4, 8 and 16 bits have as many zeros before them.
const GROUPS: [(u32, u64); 5] = [
    (1, EVEN),
    (2, 0x3333_3333_3333_3333),
    (4, 0x0f0f_0f0f_0f0f_0f0f),
    (8, 0x00ff_00ff_00ff_00ff),
    (16, 0x0000_ffff_0000_ffff),
];

/// Puts a zero bit before each bit.
fn spread(number: u32) -> u64 {
    let apart = |bits: u64, (by, left): (u32, u64)| (bits | bits << by) & left;
    GROUPS.into_iter().rev().fold(u64::from(number), apart)
}

/// Takes every second bit.
fn gather(bits: u64) -> u32 {
    let mut bits = bits & EVEN;
    for (at, (by, _)) in GROUPS.into_iter().enumerate() {
        let left = GROUPS.get(at + 1).map_or(u64::from(u32::MAX), |(_, left)| *left);
        bits = (bits | bits >> by) & left;
    }
    bits as u32
}

impl Place {
    pub(super) fn is_on_map(self) -> bool {
        (-LONGITUDE..=LONGITUDE).contains(&self.longitude)
            && (-LATITUDE..=LATITUDE).contains(&self.latitude)
    }

    fn cell(self, steps: u32, latitude_most: f64) -> Cell {
        let of = |degrees: f64, most: f64| {
            ((degrees - -most) / (most - -most) * (1_u64 << steps) as f64) as u32
        };
        let latitude = spread(of(self.latitude, latitude_most));
        Cell { bits: latitude | spread(of(self.longitude, LONGITUDE)) << 1, steps }
    }

    /// The score of a member that is here.
    pub(super) fn score(self) -> u64 {
        self.cell(STEPS, LATITUDE).bits
    }

    /// The place of a member with this score: the middle of the smallest cell.
    pub(super) fn of_score(score: f64) -> Place {
        // Of a score that no place has, the bits that C makes of it.
        let bits = match score {
            _ if score < TWO_TO_63 => score as i64 as u64,
            _ if score < 2.0 * TWO_TO_63 => score as u64,
            _ => 0,
        };
        let edges = Cell { bits, steps: STEPS }.edges();
        Place {
            longitude: ((edges.west + edges.east) / 2.0).clamp(-LONGITUDE, LONGITUDE),
            latitude: ((edges.south + edges.north) / 2.0).clamp(-LATITUDE, LATITUDE),
        }
    }

    /// The geohash that others understand, whose latitudes go from pole to pole.
    pub(super) fn geohash(self) -> String {
        const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = self.cell(STEPS, 90.0).bits;
        // 52 bits are ten letters and a part of the eleventh, which Redis leaves at zero.
        let letter = |at: u32| char::from(LETTERS[(bits >> (52 - 5 * (at + 1)) & 31) as usize]);
        (0..10).map(letter).chain(['0']).collect()
    }

    fn distance_north(self, other: Place) -> f64 {
        EARTH_RADIUS * (other.latitude * RADIANS - self.latitude * RADIANS).abs()
    }

    /// The distance in meters, along a great circle.
    pub(super) fn distance(self, other: Place) -> f64 {
        let east = ((other.longitude * RADIANS - self.longitude * RADIANS) / 2.0).sin();
        if east == 0.0 {
            return self.distance_north(other);
        }
        let (from, to) = (self.latitude * RADIANS, other.latitude * RADIANS);
        let north = ((to - from) / 2.0).sin();
        let a = north * north + from.cos() * to.cos() * east * east;
        2.0 * EARTH_RADIUS * a.sqrt().asin()
    }
}

impl Cell {
    fn edges(self) -> Edges {
        let edge = |number: u32, most: f64| {
            -most + (f64::from(number) / (1_u64 << self.steps) as f64) * (most - -most)
        };
        let (latitude, longitude) = (gather(self.bits), gather(self.bits >> 1));
        Edges {
            south: edge(latitude, LATITUDE),
            north: edge(latitude.wrapping_add(1), LATITUDE),
            west: edge(longitude, LONGITUDE),
            east: edge(longitude.wrapping_add(1), LONGITUDE),
        }
    }

    /// The cell that is so many cells to the east and to the north, around the earth if need be.
    fn beside(self, east: i8, north: i8) -> Cell {
        let shift = 64 - 2 * self.steps;
        // The bits between those of a number carry what is added over them.
        let moved = |mine: u64, between: u64, by: i8| match by {
            0 => mine,
            1.. => mine.wrapping_add((between >> shift) + 1) & (!between >> shift),
            _ => (mine | between >> shift).wrapping_sub((between >> shift) + 1) & !between >> shift,
        };
        let bits = moved(self.bits & ODD, EVEN, east) | moved(self.bits & EVEN, ODD, north);
        Cell { bits, ..self }
    }

    /// The first score of its members, and the first behind them.
    fn scores(self) -> (f64, f64) {
        let shift = 2 * (STEPS - self.steps);
        ((self.bits << shift) as f64, ((self.bits + 1) << shift) as f64)
    }
}

impl Shape {
    /// The distance of a place from the center if it is within.
    pub(super) fn distance_within(self, center: Place, place: Place) -> Option<f64> {
        match self {
            Shape::Circle(radius) => Some(center.distance(place)).filter(|far| *far <= radius),
            Shape::Box { width, height } => {
                let level = Place { longitude: center.longitude, ..place };
                let inside = place.distance_north(center) <= height / 2.0
                    && place.distance(level) <= width / 2.0;
                inside.then(|| center.distance(place))
            }
        }
    }

    /// How far it reaches, to each side and to its farthest point.
    fn reach(self) -> (f64, f64, f64) {
        match self {
            Shape::Circle(radius) => (radius, radius, radius),
            Shape::Box { width, height } => {
                let (wide, high) = (width / 2.0, height / 2.0);
                (wide, high, (wide * wide + high * high).sqrt())
            }
        }
    }

    /// What surrounds it.
    fn bounds(self, center: Place) -> Edges {
        let (wide, high, _) = self.reach();
        let north = high / EARTH_RADIUS / RADIANS;
        let east_at = |latitude: f64| wide / EARTH_RADIUS / (latitude * RADIANS).cos() / RADIANS;
        // The side that is farther from the equator is the wider one, in degrees.
        let pole = if center.latitude < 0.0 { -north } else { north };
        let east = east_at(center.latitude + pole);
        Edges {
            south: center.latitude - north,
            north: center.latitude + north,
            west: center.longitude - east,
            east: center.longitude + east,
        }
    }

    /// Ranges of scores that all members within have, in the order in which Redis reads them.
    pub(super) fn ranges(self, center: Place) -> Vec<(f64, f64)> {
        const AROUND: [(i8, i8); 9] =
            [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let bounds = self.bounds(center);
        let mut steps = steps_for(self.reach().2, center.latitude);
        let mut cell = center.cell(steps, LATITUDE);
        let too_small = cell.beside(0, 1).edges().north < bounds.north
            || cell.beside(0, -1).edges().south > bounds.south
            || cell.beside(1, 0).edges().east < bounds.east
            || cell.beside(-1, 0).edges().west > bounds.west;
        if steps > 1 && too_small {
            steps -= 1;
            cell = center.cell(steps, LATITUDE);
        }
        let edges = cell.edges();
        let useless = |(east, north): (i8, i8)| {
            steps >= 2
                && (north < 0 && edges.south < bounds.south
                    || north > 0 && edges.north > bounds.north
                    || east < 0 && edges.west < bounds.west
                    || east > 0 && edges.east > bounds.east)
        };
        let mut cells: Vec<Cell> = Vec::new();
        for (east, north) in AROUND.into_iter().filter(|side| !useless(*side)) {
            let next = cell.beside(east, north);
            // Around the whole earth the cell to the east is the one to the west.
            if cells.len() < 2 || cells.last() != Some(&next) {
                cells.push(next);
            }
        }
        cells.into_iter().map(Cell::scores).collect()
    }
}

/// How small the cells are for a search that reaches so many meters.
fn steps_for(mut meters: f64, latitude: f64) -> u32 {
    if meters == 0.0 {
        return STEPS;
    }
    let mut steps: i32 = -1;
    while meters < MERCATOR {
        meters *= 2.0;
        steps += 1;
    }
    // Degrees of longitude are short near the poles.
    steps -= i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    steps.clamp(1, STEPS as i32) as u32
}
