// RUN: distir-opt %s -p 'zero-partition{stage=1},ilp-shard{mesh="dp=16" restrict="dp=none"}' | filecheck %s --check-prefix=SMALL
// RUN: distir-opt %s -p 'zero-partition{stage=1},ilp-shard{mesh="dp=40" restrict="dp=none"}' | filecheck %s --check-prefix=LARGE

// Along an axis of many devices shards are even: a program in which they differ would be written for each of them. What no dim of divides stays whole.

// SMALL: %a: tensor<50x80xf32> {dist.name = "a", dist.role = "state", dist.sharding = #dist.sharding<@mesh, [{}, {"dp"}]>}, %b: tensor<51x81xf32> {dist.name = "b", dist.role = "state", dist.sharding = #dist.sharding<@mesh, [{"dp"}, {}]>})
// LARGE: %a: tensor<50x80xf32> {dist.name = "a", dist.role = "state", dist.sharding = #dist.sharding<@mesh, [{}, {"dp"}]>}, %b: tensor<51x81xf32> {dist.name = "b", dist.role = "state", dist.sharding = #dist.sharding<@mesh, [{}, {}]>})
func.func @main(%a: tensor<50x80xf32> {dist.name = "a", dist.role = "state"}, %b: tensor<51x81xf32> {dist.name = "b", dist.role = "state"})
    -> (tensor<50x80xf32> {dist.name = "a", dist.role = "state"}, tensor<51x81xf32> {dist.name = "b", dist.role = "state"}) {
  %0 = "onnx.Neg"(%a) : (tensor<50x80xf32>) -> tensor<50x80xf32>
  %1 = "onnx.Neg"(%b) : (tensor<51x81xf32>) -> tensor<51x81xf32>
  func.return %0, %1 : tensor<50x80xf32>, tensor<51x81xf32>
}
