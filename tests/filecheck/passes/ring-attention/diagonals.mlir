// RUN: distir-opt %s -p ring-attention | filecheck %s

// Where rows see the keys up to their own position, that is from the first key of what the device has at each step.

// CHECK:      [[K:%.*]] = dist.exchange %k dim 0 from [4, 0]
// CHECK-NEXT: [[V:%.*]] = dist.exchange %v dim 0 from [4, 0]
// CHECK-NEXT: "attention.forward"(%q, %k, %v) <{scale = 5.000000e-01 : f64, diagonal = 0 : i64}> :
// CHECK-NEXT: "attention.forward"(%q, [[K]], [[V]]) <{scale = 5.000000e-01 : f64, diagonal = -4 : i64}> {dist.by_rank = #dist.by_rank<["cp"], [{diagonal = -4 : i64}, {diagonal = 4 : i64}]>}

builtin.module attributes {dist.devices = 2 : i64, dist.axes = #dist.axes<["cp" = 2]>} {
dist.mesh @mesh = <["cp" = 2]>
func.func @main(%q: tensor<4x8xf32, #dist.on<0:2>>, %k: tensor<4x8xf32, #dist.on<0:2>>, %v: tensor<4x8xf32, #dist.on<0:2>>) -> tensor<4x8xf32, #dist.on<0:2>> {
  %K = dist.allgather %k dim 0 over "cp" : (tensor<4x8xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %V = dist.allgather %v dim 0 over "cp" : (tensor<4x8xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %o, %s = "attention.forward"(%q, %K, %V) <{scale = 0.5 : f64, diagonal = 0 : i64}> {dist.by_rank = #dist.by_rank<["cp"], [{diagonal = 0 : i64}, {diagonal = 4 : i64}]>} : (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>) -> (tensor<4x8xf32, #dist.on<0:2>>, tensor<4xf32, #dist.on<0:2>>)
  func.return %o : tensor<4x8xf32, #dist.on<0:2>>
}
}
