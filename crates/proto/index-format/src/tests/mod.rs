mod build;
mod component;
mod damage;
mod model;
mod rows;
mod terms;
