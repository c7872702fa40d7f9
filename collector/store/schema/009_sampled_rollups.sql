-- For how many requests do those of a rollup stand where a sampler kept some with a known probability? Sums of their weights and squared weights (for the
-- effective number) and of the weights of failed ones; null where each stands for itself, as in every row of before. `biased` counts requests of a sampler
-- that chose by what happened: what they stand for nobody knows. All of them add up as the counts do.
alter table rollups add column weight double;
alter table rollups add column weight_squared double;
alter table rollup_counts add column weight double;
alter table rollup_counts add column error_weight double;
alter table rollup_counts add column biased bigint;
