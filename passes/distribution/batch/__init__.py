"""The batch axis, which replicas and microbatches cut alike: `batch_axis` follows the batch through functions, `entry_axis` through the
whole program, `deferred_scale` moves scales that would end it early, `localize` copies bodies at the rows of one part, `rebatch` takes a
program to another batch size, `batch_strategy` says it as strategies of operations."""
