mod build;
mod component;
mod damage;
mod golden;
mod model;
mod rows;
mod sets;
mod terms;
