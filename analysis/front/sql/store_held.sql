-- Which store is this, and from which commit on does it hold what it was sent? One row.
select store, first_batch from v_store;
