mod model;
mod searches;
