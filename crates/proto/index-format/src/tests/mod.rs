mod component;
mod model;
