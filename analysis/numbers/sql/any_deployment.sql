-- Do pipelines or deployment tools send anything? One row if so.
select 1 from v_shapes where dialect = 'cicd' limit 1
