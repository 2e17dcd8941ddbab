// RUN: distir-opt %s -p ring-attention | filecheck %s

// What every device has of the keys and values it passes on while it computes with it; the results are combined.

// CHECK-LABEL: func.func @main
// CHECK-NEXT: [[k:%\S+]] = dist.exchange %k dim 0 from [4, 0] over "cp"
// CHECK-NEXT: [[v:%\S+]] = dist.exchange %v dim 0 from [4, 0] over "cp"
// CHECK-NEXT: [[o:%\S+]], [[s:%\S+]] = "attention.forward"(%q, %k, %v) <{scale = 5.000000e-01 : f64}>
// CHECK-NEXT: [[p:%\S+]], [[t:%\S+]] = "attention.forward"(%q, [[k]], [[v]]) <{scale = 5.000000e-01 : f64}>
// CHECK-NEXT: [[r:%\S+]], {{%\S+}} = "attention.combine"([[o]], [[s]], [[p]], [[t]])
// CHECK-NEXT: func.return [[r]]

builtin.module attributes {dist.devices = 2 : i64, dist.axes = #dist.axes<["cp" = 2]>} {
dist.mesh @mesh = <["cp" = 2]>
func.func @main(%q: tensor<4x8xf32, #dist.on<0:2>>, %k: tensor<4x8xf32, #dist.on<0:2>>, %v: tensor<4x8xf32, #dist.on<0:2>>) -> tensor<4x8xf32, #dist.on<0:2>> {
  %K = dist.allgather %k dim 0 over "cp" : (tensor<4x8xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %V = dist.allgather %v dim 0 over "cp" : (tensor<4x8xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %o, %s = "attention.forward"(%q, %K, %V) <{scale = 0.5 : f64}> : (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>) -> (tensor<4x8xf32, #dist.on<0:2>>, tensor<4xf32, #dist.on<0:2>>)
  func.return %o : tensor<4x8xf32, #dist.on<0:2>>
}
}
