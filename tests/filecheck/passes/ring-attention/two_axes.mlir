// RUN: distir-opt %s -p ring-attention | filecheck %s

// Each line of devices along the axis is a ring of its own, whatever the other axis cuts.

// CHECK: dist.exchange %k dim 1 from [4, 0] over "cp" : (tensor<3x4x8xf32, #dist.on<0:4>>) -> tensor<3x4x8xf32, #dist.on<0:4>>
// CHECK: diagonal = -4 : i64}> {dist.by_rank = #dist.by_rank<["cp"], [{diagonal = -4 : i64}, {diagonal = 4 : i64}]>}

builtin.module attributes {dist.devices = 4 : i64, dist.axes = #dist.axes<["dp" = 2, "cp" = 2]>} {
dist.mesh @mesh = <["dp" = 2, "cp" = 2]>
func.func @main(%q: tensor<3x4x8xf32, #dist.on<0:4>>, %k: tensor<3x4x8xf32, #dist.on<0:4>>, %v: tensor<3x4x8xf32, #dist.on<0:4>>) -> tensor<3x4x8xf32, #dist.on<0:4>> {
  %K = dist.allgather %k dim 1 over "cp" : (tensor<3x4x8xf32, #dist.on<0:4>>) -> tensor<3x8x8xf32, #dist.on<0:4>>
  %V = dist.allgather %v dim 1 over "cp" : (tensor<3x4x8xf32, #dist.on<0:4>>) -> tensor<3x8x8xf32, #dist.on<0:4>>
  %o, %s = "attention.forward"(%q, %K, %V) <{scale = 0.5 : f64, diagonal = 0 : i64}> {dist.by_rank = #dist.by_rank<["cp"], [{diagonal = 0 : i64}, {diagonal = 4 : i64}]>} : (tensor<3x4x8xf32, #dist.on<0:4>>, tensor<3x8x8xf32, #dist.on<0:4>>, tensor<3x8x8xf32, #dist.on<0:4>>) -> (tensor<3x4x8xf32, #dist.on<0:4>>, tensor<3x4xf32, #dist.on<0:4>>)
  func.return %o : tensor<3x4x8xf32, #dist.on<0:4>>
}
}
