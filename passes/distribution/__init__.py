"""What the distribution passes share: the options that a rule gives an op along one axis (`options`), the batch axis
(`batch_axis`, `localize`), stages (`stages`), the tensor axis (`space`, `ilp`), lowering to devices (`conversions`,
`lower`) and schedules (`tasks`, `assemble`)."""
