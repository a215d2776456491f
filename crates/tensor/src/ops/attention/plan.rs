//! How one call is cut into pieces that workers claim.
//!
//! The one idea: a piece is a tile of queries and some of its segments. Usually a piece is a whole
//! tile. Where tiles are too few to keep all workers busy (one long answer of a model with few key
//! heads), each segment is a piece; who finishes a tile's last piece merges them all, in the order
//! of positions.
//!
//! Not here: any arithmetic. No cut changes a bit of the result (see the words of the module
//! above).

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::Layer;
use super::tile::{Partial, QUERIES_MAX, SEGMENT};
use crate::kv::KvElement;

/// Below so many tiles for each worker the last ones would be waited for too long.
const TILES_PER_WORKER_MIN: usize = 4;

/// All pieces of a call.
pub(super) struct Plan {
    tiles: Vec<Tile>,
    /// The costliest first: whoever claims the last one then holds the others up least.
    pub(super) pieces: Vec<Piece>,
}

/// Queries that walk over their positions together: `rows` of a sequence times `heads` of a key
/// head's group.
#[derive(Debug)]
pub(super) struct Tile {
    pub(super) sequence_idx: usize,
    pub(super) kv_head: usize,
    pub(super) rows: Range<usize>,
    pub(super) heads: Range<usize>,
    /// Segments that at least one of the queries sees.
    segments: Range<usize>,
    /// What pieces of it have delivered, by segment, until all are there.
    delivered: Mutex<Vec<Option<Partial>>>,
}

/// What one worker computes at a time.
#[derive(Debug)]
pub(super) struct Piece {
    tile_idx: usize,
    /// All of the tile's segments, or one of them.
    pub(super) segments: Range<usize>,
    /// Multiply-adds, more or less.
    cost: usize,
}

impl Tile {
    pub(super) fn num_queries(&self) -> usize {
        self.rows.len() * self.heads.len()
    }

    /// Takes the result of one piece. Whoever delivers the last gets all of them, in order.
    pub(super) fn deliver(&self, piece: &Piece, partial: Partial) -> Option<Vec<Partial>> {
        if piece.segments == self.segments {
            return Some(vec![partial]);
        }
        // A panic elsewhere leaves the list whole: it is only ever assigned to.
        let mut delivered = self
            .delivered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        delivered.resize_with(self.segments.len(), || None);
        delivered[piece.segments.start - self.segments.start] = Some(partial);
        let all_there = delivered.iter().all(Option::is_some);
        all_there.then(|| delivered.drain(..).flatten().collect())
    }
}

impl Plan {
    /// Tiles are as large as they can be while every worker gets a piece.
    pub(super) fn new<E: KvElement>(layer: &Layer<'_, E>, num_workers: usize) -> Plan {
        let mut queries_max = QUERIES_MAX;
        let mut tiles = tiles(layer, queries_max);
        let num_segments =
            |tiles: &[Tile]| tiles.iter().map(|tile| tile.segments.len()).sum::<usize>();
        while num_segments(&tiles) < num_workers && queries_max > 1 {
            queries_max /= 2;
            tiles = self::tiles(layer, queries_max);
        }
        let few_tiles = num_workers > 1 && tiles.len() < TILES_PER_WORKER_MIN * num_workers;
        let mut pieces = Vec::with_capacity(tiles.len());
        for (tile_idx, tile) in tiles.iter().enumerate() {
            let segments_each = if few_tiles { 1 } else { tile.segments.len() };
            for first in tile.segments.clone().step_by(segments_each) {
                let segments = first..(first + segments_each).min(tile.segments.end);
                let cost = cost(layer, tile, &segments);
                pieces.push(Piece {
                    tile_idx,
                    segments,
                    cost,
                });
            }
        }
        pieces.sort_by_key(|piece| Reverse(piece.cost));
        Plan { tiles, pieces }
    }

    pub(super) fn tile_of(&self, piece: &Piece) -> &Tile {
        &self.tiles[piece.tile_idx]
    }

    /// Multiply-adds of all pieces, more or less.
    pub(super) fn cost(&self) -> usize {
        self.pieces.iter().map(|piece| piece.cost).sum()
    }
}

fn tiles<E: KvElement>(layer: &Layer<'_, E>, queries_max: usize) -> Vec<Tile> {
    let group = layer.group();
    let (rows_each, heads_each) = ((queries_max / group).max(1), queries_max.min(group));
    let mut tiles = Vec::new();
    for (sequence_idx, sequence) in layer.input.sequences.iter().enumerate() {
        for kv_head in 0..layer.input.pages.shape().num_kv_heads {
            for first_row in (0..sequence.num_rows).step_by(rows_each) {
                let rows = first_row..(first_row + rows_each).min(sequence.num_rows);
                let first = layer.visible(sequence.num_past + rows.start).start;
                let end = sequence.num_past + rows.end;
                for first_head in (0..group).step_by(heads_each) {
                    tiles.push(Tile {
                        sequence_idx,
                        kv_head,
                        rows: rows.clone(),
                        heads: first_head..(first_head + heads_each).min(group),
                        segments: first / SEGMENT..end.div_ceil(SEGMENT),
                        delivered: Mutex::default(),
                    });
                }
            }
        }
    }
    tiles
}

fn cost<E: KvElement>(layer: &Layer<'_, E>, tile: &Tile, segments: &Range<usize>) -> usize {
    let last = layer.input.sequences[tile.sequence_idx].num_past + tile.rows.end - 1;
    let visible = layer.visible(last);
    let start = visible.start.max(segments.start * SEGMENT);
    let end = visible.end.min(segments.end * SEGMENT);
    tile.num_queries() * end.saturating_sub(start) * 2 * layer.input.pages.shape().head_dim
}
