mod batches;
mod model;
mod waiting;
