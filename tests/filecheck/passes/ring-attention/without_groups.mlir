// RUN: not distir-opt %s -p ring-attention 2>&1 | filecheck %s

// CHECK: ring-attention takes a program over groups: apply-sharding{grouped=true} writes one, where all devices do the same (ilp-shard{shards=even})
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  func.return %x : tensor<4xf32>
}
