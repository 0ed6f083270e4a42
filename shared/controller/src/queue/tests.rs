mod batches;
mod fairness;
mod model;
mod waiting;
