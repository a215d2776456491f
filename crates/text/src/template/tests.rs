//! Templates in small: our own, each for one habit.
