// RUN: distir-opt %s -p ring-attention | filecheck %s

// Of a mask, each step has that of the keys that the device then has.

// CHECK:      [[M:%.*]] = dist.slice %m [0:4, 0:4] {dist.by_rank = #dist.by_rank<["cp"], [{starts = array<i64: 0, 0>, stops = array<i64: 4, 4>}, {starts = array<i64: 0, 4>, stops = array<i64: 4, 8>}]>}
// CHECK:      "attention.forward"(%q, %k, %v, [[M]])
// CHECK:      [[M:%.*]] = dist.slice %m [0:4, 4:8] {dist.by_rank = #dist.by_rank<["cp"], [{starts = array<i64: 0, 4>, stops = array<i64: 4, 8>}, {starts = array<i64: 0, 0>, stops = array<i64: 4, 4>}]>}
// CHECK:      "attention.forward"(%q, {{%\S+}}, {{%\S+}}, [[M]])

builtin.module attributes {dist.devices = 2 : i64, dist.axes = #dist.axes<["cp" = 2]>} {
dist.mesh @mesh = <["cp" = 2]>
func.func @main(%q: tensor<4x8xf32, #dist.on<0:2>>, %k: tensor<4x8xf32, #dist.on<0:2>>, %v: tensor<4x8xf32, #dist.on<0:2>>, %m: tensor<4x8xi1, #dist.on<0:2>>) -> tensor<4x8xf32, #dist.on<0:2>> {
  %K = dist.allgather %k dim 0 over "cp" : (tensor<4x8xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %V = dist.allgather %v dim 0 over "cp" : (tensor<4x8xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %o, %s = "attention.forward"(%q, %K, %V, %m) <{scale = 0.5 : f64}> : (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>, tensor<4x8xi1, #dist.on<0:2>>) -> (tensor<4x8xf32, #dist.on<0:2>>, tensor<4xf32, #dist.on<0:2>>)
  func.return %o : tensor<4x8xf32, #dist.on<0:2>>
}
}
